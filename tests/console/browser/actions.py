"""What a visitor does on a page until it is in the state to look at."""

from collections.abc import Callable

from playwright.sync_api import Page

from tests.console.auth import ISSUER_HOST
from tests.console.auth_rows import EMAIL, INVITATION
from tests.console.browser.api import Api

Act = Callable[[Page], None]
ANSWER = """### Reversing a string

A string is a *sequence*, so it has a **slice** of `step` -1:

1. Take the string
   - any length
2. Slice it

```python
reversed_text = text[::-1]
```

| Way | Copies |
|---|---|
| `[::-1]` | once |
| `"".join(reversed(text))` | twice |

> A new string is made each time.

See [the documentation](https://docs.python.org/3/library/stdtypes.html).
"""


def look(page: Page) -> None:
    """Does nothing: the page itself is the state."""


def try_a_wrong_code(page: Page) -> None:
    page.get_by_label("Code of your sign-in link").fill("AAAA-BBBB")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_text("Sign-in failed", exact=True).wait_for()


def show_the_invitation(page: Page) -> None:
    page.get_by_label("Code of the invitation").fill(INVITATION)
    page.get_by_role("button", name="Show the invitation").click()
    page.get_by_role("button", name="Accept", exact=True).wait_for()


def try_a_wrong_password(page: Page) -> None:
    page.get_by_text("Other ways to sign in").click()
    page.get_by_label("Email address", exact=True).fill(EMAIL)
    page.get_by_label("Password").fill("wrong")
    page.get_by_label("Code of your authenticator app").fill("000000")
    page.get_by_role("button", name="Sign in with your password").click()
    page.get_by_text("Sign-in failed", exact=True).wait_for()


def create_a_key(page: Page) -> None:
    page.get_by_role("button", name="Create the key").click()
    page.get_by_text("Save the key now").wait_for()


def mistype_a_limit(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.get_by_label("Requests per minute").fill("many")
    page.get_by_label("Dollars a day").fill("five")
    page.get_by_role("button", name="Create the key").click()
    page.get_by_text("A whole number, or nothing.").first.wait_for()


def mistype_a_spend_limit(page: Page) -> None:
    page.get_by_label("Dollars a day").fill("five")
    page.get_by_role("button", name="Set the spend limits").click()
    page.get_by_text("An amount in dollars such as 5.00, or nothing.").first.wait_for()


def create_the_first_key(page: Page) -> None:
    page.get_by_role("button", name="Create a key and insert it").click()
    page.get_by_text("Your key is in the examples below").wait_for()


def revoke(page: Page) -> None:
    page.locator("summary", has_text="Revoke").click()
    page.get_by_role("button", name="Revoke this key").click()
    page.get_by_text("It took effect on every edge").wait_for()


def revoke_chosen_keys(page: Page) -> None:
    page.get_by_role("button", name="Revoke these 2 keys").click()
    page.get_by_text("It took effect on every edge").wait_for()


def revoke_keys_of_others_too(page: Page) -> None:
    page.locator("[name=key][value=key_0000000000000001]").check()
    page.get_by_role("button", name="Revoke the chosen keys").click()
    # As if an owner had taken the key over while the page was open.
    page.evaluate("""() => {
        const field = document.querySelector('main form [name=key]');
        const other = field.cloneNode();
        other.value = 'key_0000000000000002';
        field.after(other);
    }""")
    page.get_by_role("button", name="Revoke this key").click()
    page.get_by_text("One key was not revoked.").wait_for()


def mistype_an_amount(page: Page) -> None:
    page.get_by_label("Or another amount").fill("a lot")
    page.get_by_role("button", name="Continue to payment").click()
    page.get_by_text("One field needs another look").wait_for()


def make_recovery_codes(page: Page) -> None:
    page.get_by_role("button", name="Make new codes").click()
    page.get_by_text("Save them now").wait_for()


def mistype_a_code(page: Page) -> None:
    page.get_by_label("Code", exact=True).fill("000000")
    page.get_by_role("button", name="Set up").click()
    page.get_by_text("the picture is the same").wait_for()


def link_an_identity(page: Page) -> None:
    page.get_by_role("button", name=f"Link {ISSUER_HOST}").click()
    page.get_by_role("link", name="Continue").wait_for()


def invite(page: Page) -> None:
    page.get_by_text("Invite a member").click()
    page.get_by_role("button", name="Make the invitation").click()
    page.get_by_text("Pass this link on").wait_for()


def delete_the_user(page: Page) -> None:
    page.get_by_role("button", name="Delete my user for good").click()
    page.get_by_text("last owner").or_(page.get_by_text("You are signed out")).wait_for()


def close_the_account(page: Page) -> None:
    page.get_by_role("button", name="Close the account for good").click()
    page.get_by_text("Credit that was left").wait_for()


def have_a_code_mailed(page: Page) -> None:
    page.get_by_role("button", name="Mail me a code").click()
    page.get_by_text("A code is on its way").wait_for()


def show_the_invitation_while_signed_in(page: Page) -> None:
    page.get_by_label("Code of the invitation").fill(INVITATION)
    page.get_by_role("button", name="Show the invitation").click()
    page.get_by_role("heading", name="Join").wait_for()


def add_a_webhook(page: Page) -> None:
    page.get_by_label("Address of a new webhook").fill("https://hooks.example.ca/second")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("Save the secret now").wait_for()


def compare_two_answers(page: Page) -> None:
    """Asks two classes, and begins to write the message anew."""
    api = Api(page)
    # Both begin at 0, and have their first token at the same time.
    page.evaluate("() => { let asked = 0; performance.now = () => (asked++ < 2 ? 0 : 400); }")
    page.locator("#model").select_option("mezzo")
    page.locator("#other").select_option("forte")
    api.stream(ANSWER, model="mezzo", number=1)
    api.stream("Write `text[::-1]`.", finish_reason="length", model="forte", number=2)
    page.locator("#message").fill("How do I reverse a string in Python?")
    page.keyboard.press("Enter")
    page.locator(".facts-line a").nth(1).wait_for()
    page.locator(".turn.user button").click()
    # Nothing scrolls out of its box.
    page.evaluate("document.querySelector('.turns').style.maxHeight = 'none'")
