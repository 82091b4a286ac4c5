"""What does not fit in the paper, and what was done instead: the last section of the page."""

DEVIATIONS = """\
## What the paper leaves out or contradicts, and what we did

- **Partitions, rate, arrivals and number of consumers are not stated.** Without them no figure of \
section III can be repeated as it was measured. We chose eight partitions, and the rate at which \
the paper's 73 % occur.
- **73 % and 57 % do not belong to one rate.** In queues with constant service times, 50 µs and \
20 µs at the same rate are 2.5 times apart in load: when one is just below overload, at the other \
no partition is more than 40 % busy, and balancing changes little. Both percentages occur, but a \
few points of utilisation apart. An overhead per record that the paper does not report, or bursts, \
could explain the 57 %.
- **"Heavy" as 10 % of the messages per flow cannot be meant**: the largest key has 4.5 %. Read \
as the top keys that together hold 10 %, it fits the sharp drop and the remark that a low value \
tracks few keys. Where the drop lies depends on which of the top keys share a partition.
- **The 14 thousand hot keys are counted over the whole run**, while the text says "in any \
counting window". Per window of 10 s about 660 keys reach 100 records, of 20 s about 1 250: the \
paper's 1 to 1.5 thousand fit windows of 16 to 24 s.
- **The formula for "about 3/4"** multiplies a rate by the threshold and mixes two symbols. We \
report the records of hot keys as a part of all.
- **Processing times appear in µs and in ms.** We read all of them as µs.
- **Inequality (4), when a migration pays, never holds for a hot key as printed.** The paper's \
own runs avoid it by deciding every 10 s, and so do the runs here. The planners offer it \
(`worth: eq4`), and a test by waiting time (`worth: delay`).
- **Cold records are not looked at.** The paper balances the load of hot keys only. With few hot \
keys a partition can end up worse than under hash; the threshold sweep shows it. The option \
`load: total` balances all records, and `trim` always does.
- **The last message before a migration is unknown when it is sent**, so it cannot carry a mark. \
We write records of their own (END and START).
- **One sentence lets the old consumer start** after the old consumer has finished: it must be \
the new one.
- **Keys that cool down are "dropped".** Their records would go back to the hash's partition \
while older ones still wait elsewhere, and lose their order. Here it is a migration like any other.
- **State transfer, crashes, repeated records and rebalances of the consumer group** are not \
treated. They are no part of this simulation either, apart from the time that a moved key waits.
- **Left open, and decided**: overloaded partitions are relieved in order of load, ties by \
number; one stops giving when it reaches the mean; the two random choices come from a hash of key \
and plan number, so that a run can be repeated; windows are strictly tumbling.
- **The shift of the dynamic load is not stated**: we ran 10 and 1 000 keys every minute. For one \
window after each shift SMALOPS routes by outdated rates. The paper's figure 10 does not show it.
"""
