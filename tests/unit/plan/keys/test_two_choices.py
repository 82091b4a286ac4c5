"""The two partitions that a key may go to."""

from collections import Counter

from trimtab.plan.keys.two_choices import two_choices


def test_the_two_always_differ_and_exist():
    for m in (2, 3, 8):
        for n in range(200):
            a, b = two_choices(b"%d" % n, plan_number=n, partitions=m)
            assert a != b
            assert {a, b} <= set(range(m))


def test_all_pairs_occur_about_equally_often():
    pairs = Counter(two_choices(b"%d" % n, plan_number=0, partitions=4) for n in range(12_000))

    assert len(pairs) == 12
    assert all(800 < count < 1200 for count in pairs.values())


def test_another_plan_number_draws_again():
    drawn = {two_choices(b"key", plan_number=n, partitions=100) for n in range(20)}

    assert len(drawn) > 15
