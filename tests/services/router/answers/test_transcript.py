"""What is kept of an answer."""

from services.chassis.packed_pieces import pack_piece
from services.router.answers.transcript import Transcript


def test_text_is_that_of_all_pieces_packed_or_not() -> None:
    transcript = Transcript()
    assert transcript.text == ""
    transcript.add_packed(pack_piece(5, 1, ["Once"]))
    transcript.add([])
    transcript.add([" \n", '"upon"'])
    # As a server may have written it.
    transcript.add_packed(pack_piece(5, 2, [])[:17] + b'" \\ud83c\\udf0d"\n" \xc3\xa9"')
    assert transcript.text == 'Once \n"upon" 🌍 é'


def test_nothing_is_kept_of_a_longer_answer() -> None:
    transcript = Transcript(most_bytes=10)
    transcript.add(["12345678"])
    assert (transcript.is_whole, transcript.text) == (True, "12345678")
    transcript.add(["9"])
    transcript.add(["1"])
    assert (transcript.is_whole, transcript.text) == (False, "")
