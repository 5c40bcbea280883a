"""Renders pages from templates."""

import gzip
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from markupsafe import Markup
from starlette.responses import Response

from console.display import event_words, language, usage_columns, words
from console.display.sentences import in_words
from console.web.assets import Assets
from services.chassis.money import format_usd

FOLDER: Final = Path(__file__).parents[1] / "templates"
# Smaller ones fit into a packet anyway.
COMPRESSED_FROM_BYTES: Final = 1024
HTML: Final = "text/html; charset=utf-8"


class Pages:
    def __init__(self, assets: Assets) -> None:
        self.assets = assets
        self._environment = new_environment(assets)
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def text(self, template: str, context: dict[str, object]) -> str:
        return self._environment.get_template(template).render(context)


class PageResponse(Response):
    """A page, which is rendered when that is known which every page tells."""

    def __init__(
        self, pages: Pages, template: str, context: dict[str, object], status: int, *, may_compress: bool
    ) -> None:
        super().__init__(None, status, {"vary": "accept-encoding"}, HTML)
        self._pages = pages
        self._template = template
        self._context = context
        self._may_compress = may_compress

    def complete(self, **context: object) -> None:
        body = self._pages.text(self._template, {**self._context, **context}).encode()
        if self._may_compress and len(body) >= COMPRESSED_FROM_BYTES:
            body = gzip.compress(body, 4, mtime=0)
            self.headers["content-encoding"] = "gzip"
        self.body = body
        self.headers["content-length"] = str(len(body))


def new_environment(assets: Assets) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=["jinja2.ext.i18n"],
    )
    # A sentence may go over several lines of a template.
    environment.policies["ext.i18n.trimmed"] = True
    words_of = {"gettext": language.gettext, "ngettext": language.plural_form, "pgettext": language.pgettext}
    environment.install_gettext_callables(**words_of, newstyle=True)  # type: ignore[attr-defined]
    environment.globals.update(
        asset=assets.path_of,
        language=language.tag,
        languages=language.LANGUAGES,
        spoken=language.spoken,
        scopes_by_number=words.SCOPES,
        key_states=words.KEY_STATES,
        roles=words.ROLES,
        sign_in_methods=words.SIGN_IN_METHODS,
        listed=words.listed,
        wait_words=words.wait_words,
        long_day=words.day,
        short_day=words.short_day,
        day_range=words.day_range,
        column_places=words.column_places,
        exact_places=words.exact_places,
        product_places=words.product_places,
        part_lines=usage_columns.part_lines,
        usage_titles=usage_columns.titles_of,
        event_words=event_words.event_words,
        in_words=in_words,
        event_kinds=event_words.KINDS,
        # A form that is sent twice is carried out once.
        new_form_id=lambda: secrets.token_hex(16),
    )
    figures: dict[str, Callable[..., str]] = {
        "usd": _money,
        "credit": _credit,
        "exact_usd": words.exact,
        "product_usd": words.product,
        "ledger": _ledger,
        "number": words.number,
        "percent": words.percent,
        "size": words.size,
        "browser": words.browser_words,
        "time": _time,
    }
    environment.filters.update({name: _at_each_visit(write) for name, write in figures.items()})
    return environment


def _at_each_visit(write: Callable[..., str]) -> Callable[..., str]:
    """Returns a filter that Jinja does not run while it compiles a template: figures that the template has as
    constants would be written in English, whatever the language of the visit."""

    @pass_context
    def written(_context: object, *values: Any, **options: Any) -> str:
        return write(*values, **options)

    return written


def _money(nanos: int, places: int | None = None) -> Markup:
    return _data(nanos, words.usd(nanos, places))


def _credit(nanos: int) -> Markup:
    return _data(nanos, words.credit(nanos))


def _data(nanos: int, shown: str) -> Markup:
    # Digits and signs of our own: to escape them would take most of the time of a long table.
    return Markup(f'<data value="{format_usd(nanos)}">{shown}</data>')  # noqa: S704


def _ledger(nanos: int) -> Markup:
    """Formats all nine decimals, so that columns align and add up; what is less than a cent stands back."""
    digits = words.nine_decimals(nanos)
    return _data(nanos, words.dollars(nanos, f'{digits[:-7]}<span class="rest">{digits[-7:]}</span>'))


def _time(when: Timestamp | datetime, to: str = "minute") -> Markup:
    """Marks up a time in UTC; a script shows it in the reader's zone."""
    moment = words.time_of(when) if isinstance(when, Timestamp) else when.astimezone(UTC)
    shown = words.short_day(moment.date(), year=True)
    if to != "day":
        shown = f"{shown}, {words.clock(moment, seconds=to == 'second')} UTC"
    # A day is the same everywhere only if it is not moved.
    data = "" if to == "day" and isinstance(when, datetime) else f' data-to="{to}"'
    return Markup(f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}"{data}>{shown}</time>')  # noqa: S704
