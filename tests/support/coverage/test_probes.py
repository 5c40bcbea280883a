import textwrap

from tests.support.coverage.probes import EXECUTED, compile_with_probes


def run(source: str) -> dict[str, object]:
    """Runs a module, and returns its names."""
    text = textwrap.dedent(source).lstrip("\n")
    names: dict[str, object] = {EXECUTED: [False] * (text.count("\n") + 2)}
    exec(compile_with_probes(text.encode(), "module.py"), names)
    return names


def lines_that_run(source: str) -> list[int]:
    executed = run(source)[EXECUTED]
    assert isinstance(executed, list)
    return [line for line, ran in enumerate(executed) if ran]


def test_a_line_that_ran_counts_and_one_that_did_not_is_missing() -> None:
    assert lines_that_run(
        """
        if 1 > 2:
            a = 1
        elif 2 > 1:
            a = 2
        else:
            a = 3
        """
    ) == [1, 3, 4]


def test_the_body_of_a_function_counts_when_it_is_called() -> None:
    definition = """
        def double(number):
            return number * 2
        """
    assert lines_that_run(definition) == [1]
    assert lines_that_run(definition + "double(1)\n") == [1, 2, 3]


def test_lines_after_an_exception_do_not_count() -> None:
    assert lines_that_run(
        """
        try:
            int("x")
            a = 1
        except OSError:
            a = 2
        except ValueError:
            a = 3
        finally:
            a = 4
        """
    ) == [1, 2, 6, 7, 9]


def test_a_case_counts_when_it_is_taken() -> None:
    assert lines_that_run(
        """
        match 2:
            case 1:
                a = 1
            case 2:
                a = 2
        """
    ) == [1, 4, 5]


def test_decorators_count_with_what_they_decorate() -> None:
    assert lines_that_run(
        """
        class Kept:
            @property
            @staticmethod
            def name():
                return ""
        """
    ) == [1, 2, 3, 4]


def test_docstrings_and_future_imports_keep_their_meaning() -> None:
    names = run(
        '''
        """Tells what it is."""
        from __future__ import annotations

        def double(number: unknown) -> unknown:
            """Doubles."""
            return number * 2
        '''
    )
    assert names["__doc__"] == "Tells what it is."
    assert getattr(names["double"], "__doc__", None) == "Doubles."
    assert getattr(names["double"], "__annotations__", None) == {"number": "unknown", "return": "unknown"}


def test_a_class_gets_no_further_names() -> None:
    plain: dict[str, object] = {}
    source = """
        from enum import Enum
        class Colour(Enum):
            RED = 1
            __hidden = 2
            def shown(self):
                return self.__hidden
        names = sorted(vars(Colour))
        """
    exec(textwrap.dedent(source), plain)
    assert run(source)["names"] == plain["names"]


def test_a_traceback_names_the_line_of_the_source() -> None:
    try:
        run("a = 1\n\nb = a / 0\n")
    except ZeroDivisionError as error:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        assert traceback is not None
        assert (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno) == ("module.py", 3)
    else:
        raise AssertionError("the division succeeded")
