"""A session of the web console, as a browser keeps it: one cookie."""

import http.client
from urllib.parse import urlencode, urlsplit


def sign_in(link: str) -> str:
    """Uses a link of `legato users`; returns the cookie."""
    address = urlsplit(link)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    headers = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", urlencode({"code": address.fragment}), headers)
    response = connection.getresponse()
    cookies = [cookie.partition(";")[0] for cookie in response.headers.get_all("set-cookie") or ()]
    connection.close()
    assert response.status == 303, response.status
    [session] = [cookie for cookie in cookies if cookie.startswith("__Host-legato=")]
    return session


def is_signed_in(origin: str, session: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(origin).netloc, timeout=60)
    connection.request("GET", "/keys", headers={"cookie": session})
    status = connection.getresponse().status
    connection.close()
    return status == 200
