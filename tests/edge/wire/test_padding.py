from edge.wire.padding import BLOCK_BYTES, filler


def test_everything_is_filled_up_to_a_multiple_of_a_block() -> None:
    for size_bytes in range(3 * BLOCK_BYTES):
        padding = filler(size_bytes)
        assert (size_bytes + len(padding)) % BLOCK_BYTES == 0
        assert 1 <= len(padding) <= BLOCK_BYTES


def test_no_two_fillers_are_the_same() -> None:
    assert len({filler(0) for _ in range(100)}) == 100
