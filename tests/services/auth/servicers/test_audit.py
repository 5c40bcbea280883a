from legato_protos.auth.v1 import users_pb2 as pb
from tests.services.auth.console import Console
from tests.services.auth.keys.test_keys import create_key


async def test_the_audit_log_tells_what_was_done_and_by_whom(console: Console) -> None:
    account_id = await console.create_account()
    owner, token = await console.signed_in(account_id)
    key = await create_key(console, account_id, token)
    request = pb.ListAuditEventsRequest(account_id=account_id, page_size=1)
    page = await console.call(console.audit.ListAuditEvents, request, token)
    [event] = page.events
    assert (event.action, event.user_id, event.object_id) == ("key.created", owner.user.user_id, key.key_id)
    assert (event.user_name, event.network) == ("Ada", "192.0.2.0/24")
    request.page_token = page.next_page_token
    before = await console.call(console.audit.ListAuditEvents, request, token)
    assert before.events[0].event_no < event.event_no
