import json
import threading

import pytest

from trimtab.apply.consumers.kafka import consumer as door
from trimtab.apply.consumers.kafka.directed_reader import OffsetReset
from trimtab.apply.handling import FixedService
from trimtab.apply.keys.backends.disk_store import DiskStore
from trimtab.apply.totals import Totals
from trimtab.cli.main import run
from trimtab.errors import StateTooLarge
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

BASE = ["consume", "--bootstrap-server", "broker:9092", "--group", "pay", "--topic", "orders"]


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path, monkeypatch):
    """No setting of the person who runs the tests plays a part."""
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP_SERVER", "COMMAND_CONFIG", "CONFIG", "TOPIC_PREFIX"):
        monkeypatch.delenv(f"TRIMTAB_{name}", raising=False)


@pytest.fixture
def opened(monkeypatch):
    """What would have run, instead of its running."""
    seen = []

    def consumer(kind):
        class Opened:
            def __init__(self, config, *, stop, **more):
                assert isinstance(stop, threading.Event)
                seen.append((kind, config, more))

            def run(self):
                return Totals(records=7, bytes=70, batches=2, dead_letters=1)

        return Opened

    monkeypatch.setattr(door, "DirectedConsumer", consumer("directed"))
    monkeypatch.setattr(door, "GroupConsumer", consumer("group"))
    return seen


def test_a_directed_consumer_gets_what_the_flags_say(opened, tmp_path, capsys):
    more = ["--index", "2", "--lake", str(tmp_path / "lake"), "--batch-bytes", "1000"]
    more += ["--wait", "100ms", "--from", "latest", "--no-receipts", "--run", "r7"]
    assert run([*BASE, "--topic", "bills", *more]) == 0
    kind, config, _ = opened[0]
    assert (kind, config.group, config.topics, config.index) == (
        *("directed", "pay", ("orders", "bills"), 2),
    )
    assert (config.limits.batch_bytes, config.limits.wait_s) == (1000, 0.1)
    assert (config.beginning, config.receipts, config.run) == (OffsetReset.LATEST, False, "r7")
    assert config.handler is None
    assert (tmp_path / "lake").is_dir()
    assert capsys.readouterr().out == "7 records, 70 bytes in 2 batches; 1 dead letters\n"


def test_a_start_after_a_crash_names_the_record_that_was_in_hand(opened, tmp_path, capsys):
    noted = tmp_path / "record"
    flags = [*BASE, "--mode", "group", "--service-time", "10ms", "--in-hand", str(noted)]
    assert run(flags) == 0
    assert "ended while it handled" not in capsys.readouterr().err

    opened[0][1].in_hand(Record("orders", 3, 17, None, None, (), 0))  # and then it is killed
    assert run(flags) == 0
    assert "the previous process ended while it handled orders-3, offset 17" in (
        capsys.readouterr().err
    )
    assert run(flags) == 0
    assert "ended while it handled" not in capsys.readouterr().err


def test_a_group_consumer_needs_no_index_and_knows_where_the_controller_is(opened, monkeypatch):
    url = "http://127.0.0.1:1"
    monkeypatch.setenv("TRIMTAB_CONTROLLER__TOKEN", "s3cret")
    assert run([*BASE, "--mode", "group", "--service-time", "10ms", "--controller-url", url]) == 0
    kind, config, more = opened[0]
    assert (kind, config.index, more) == ("group", None, {"controller_url": url, "token": "s3cret"})
    assert isinstance(config.handler, FixedService)


def test_a_member_in_a_pod_is_a_static_one_of_that_name(opened, monkeypatch):
    flags = [*BASE, "--mode", "group", "--service-time", "10ms"]
    for name in ("KUBERNETES_SERVICE_HOST", "POD_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOSTNAME", "laptop")
    assert run(flags) == 0
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert run(flags) == 0
    monkeypatch.setenv("POD_NAME", "pay-7d4f-x2x")
    assert run(flags) == 0
    assert run([*flags, "--instance-id", "mine"]) == 0
    assert run([*BASE, "--index", "0", "--service-time", "10ms"]) == 0
    instances = [config.instance for _, config, _ in opened]
    assert instances == [None, "laptop", "pay-7d4f-x2x", "mine", None]
    assert opened[2][1].name("9b") == "trimtab-pay-pay-7d4f-x2x"


def test_json_is_one_document(opened, capsys):
    assert run([*BASE, "--index", "0", "--service-time", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"records": 7, "bytes": 70, "batches": 2, "dead_letters": 1}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--service-time", "1ms"], "is required in directed mode"),
        (["--index", "0"], "one of --handler, --lake and --service-time is required"),
        (
            ["--index", "0", "--service-time", "1ms", "--handler", "a:b"],
            "cannot be combined with --handler",
        ),
        (["--index", "0", "--handler", "nothing"], "Invalid handler"),
        (["--index", "-1", "--service-time", "1ms"], "Invalid value for '--index'"),
        (["--index", "0", "--instance-id", "a", "--service-time", "1ms"], "has an --index instead"),
        (["--mode", "group", "--instance-id", "a b", "--service-time", "1ms"], "1 to 249 letters"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_a_broker_is_asked(flags, told, opened, capsys):
    assert run([*BASE, *flags]) == 2
    assert told in capsys.readouterr().err
    assert opened == []


def test_states_are_kept_where_the_flags_say(opened, tmp_path):
    keyed = [*BASE, "--index", "0", "--keyed"]
    assert run([*keyed, "--store", "disk", "--store-dir", str(tmp_path)]) == 0
    assert run([*keyed, "--max-state-memory", "1000"]) == 0
    on_disk, in_memory = (config.worker.work.store for _, config, _ in opened)
    store = on_disk(TopicPartition("orders", 0))
    assert isinstance(store, DiskStore)
    store.close()
    with pytest.raises(StateTooLarge, match="1000 bytes"):
        in_memory(TopicPartition("orders", 0))[b"a"] = bytes(300_000)


def test_a_folder_of_states_needs_a_store_on_disk(opened, tmp_path, capsys):
    folder = ["--store-dir", str(tmp_path)]
    assert run([*BASE, "--index", "0", "--keyed", *folder]) == 2
    assert "is for --store disk" in capsys.readouterr().err


def test_metrics_are_served_for_keyed_consumers_only(opened, monkeypatch, capsys):
    from trimtab.observe import metrics

    served = []
    monkeypatch.setattr(metrics, "serve", lambda port, *, host: served.append((port, host)))

    assert run([*BASE, "--index", "0", "--keyed", "--metrics-port", "9100"]) == 0
    assert served == [(9100, "127.0.0.1")]

    assert run([*BASE, "--index", "0", "--service-time", "0", "--metrics-port", "9100"]) == 2
    assert "--keyed" in capsys.readouterr().err
    assert len(served) == 1
