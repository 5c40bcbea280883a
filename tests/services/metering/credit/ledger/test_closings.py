from services.metering.credit.ledger.closings import EntriesDigest
from services.metering.credit.store.closings import LEDGER_COLUMNS

ENTRY = ("charge", "0" * 32, "acct_a", -5, 7, 5, 0, 0, "key_a", "forte", 1, 0, 1, 3, 2, 1, "provider", "complete", None)


def test_a_column_that_came_later_leaves_the_hash_of_entries_without_it() -> None:
    columns = [name for name in LEDGER_COLUMNS if name != "later_tokens"]
    before, after = EntriesDigest(columns), EntriesDigest([*columns, "later_tokens"])
    text = before.add([(1, *ENTRY)])
    assert after.add([(1, *ENTRY, 0)]) == text
    assert after.hexdigest() == before.hexdigest()
    assert after.add([(2, *ENTRY, 9)]) != before.add([(2, *ENTRY)])
    assert after.hexdigest() != before.hexdigest()
