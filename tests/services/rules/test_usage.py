from legato_protos.chat.v1 import chat_pb2
from legato_protos.type.v1 import usage_pb2
from services.rules.usage import (
    COLUMNS,
    PART_OF,
    Usage,
    add_usage,
    counts_of,
    message_of,
    named,
    usage_of,
    with_bounded_parts,
)


def test_columns_are_the_fields_of_both_messages() -> None:
    assert tuple(field.name for field in usage_pb2.Usage.DESCRIPTOR.fields) == COLUMNS
    # The public one has the cost, too.
    assert {field.name for field in chat_pb2.Usage.DESCRIPTOR.fields} == {*COLUMNS, "cost_nanos"}


def test_parts_are_columns_and_behind_what_they_are_a_part_of() -> None:
    assert {*PART_OF, *PART_OF.values()} <= {*COLUMNS}
    assert all(COLUMNS.index(whole) < COLUMNS.index(part) for part, whole in PART_OF.items())


def test_a_message_has_the_counts_of_a_record_and_takes_others() -> None:
    usage = Usage(*range(7, 7 + len(COLUMNS)))
    message = message_of(usage)
    assert usage_of(message) == usage
    add_usage(message, usage)
    assert named(message) == {name: 2 * count for name, count in named(usage).items()}
    assert usage_of(message).minus(usage) == usage


def test_a_part_is_at_most_the_whole() -> None:
    for part, whole in PART_OF.items():
        assert Usage(*with_bounded_parts(counts_of(Usage(**{part: 5, whole: 3})))) == Usage(**{part: 3, whole: 3})
        assert Usage(*with_bounded_parts(counts_of(Usage(**{part: 2, whole: 3})))) == Usage(**{part: 2, whole: 3})


def test_parts_of_one_whole_are_together_at_most_that() -> None:
    usage = Usage(prompt_tokens=10, cached_tokens=7, cache_write_tokens=7, completion_tokens=5, reasoning_tokens=6)
    bounded = Usage(prompt_tokens=10, cached_tokens=7, cache_write_tokens=3, completion_tokens=5, reasoning_tokens=5)
    assert Usage(*with_bounded_parts(counts_of(usage))) == bounded
