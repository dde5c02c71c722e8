"""Tests the oracle: a correct queue passes, and the oracle finds each
fault.
"""

from batch_faults import BATCH_FAULTS
from fake import Fake, FakeServer
from cost_faults import COST_FAULTS, FakeByCost
from faults import FAULTS
from history import History
from life_faults import LIFE_FAULTS
from profiles import COSTS, FAN_IN, LIVES, SERVICE

KINDS = {
    "self-test: a sound queue passes": (Fake, (), SERVICE + LIVES + FAN_IN, 8),
    "self-test: a sound cost-fair queue passes": (FakeByCost, (), COSTS, 8)}
for faults, profiles in ((FAULTS, SERVICE), (LIFE_FAULTS, LIVES),
                         (BATCH_FAULTS, FAN_IN), (COST_FAULTS, COSTS)):
    for kind, kinds in faults.items():
        KINDS[f"self-test: {kind.__name__} is found"] = (kind, kinds, profiles,
                                                         60)


def self_test(name):
    """The report, or None."""
    kind, kinds, profiles, count = KINDS[name]
    for number in range(count):
        for profile in profiles:
            if profile.exclusive:
                continue
            history = History(profile, "self-test", number)
            found = history.run(FakeServer(kind))
            if found:
                return None if found.kind in kinds else f"found as {found}"
            if history.given_up:
                return f"{history.seed} was given up"
    return "not found" if kinds else None
