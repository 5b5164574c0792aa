"""Test addresses that nothing answers."""

from __future__ import annotations

from django.test import Client


def test_an_unknown_address_of_the_api_is_refused_as_json(client: Client) -> None:
    response = client.get("/api/v1/no-such-thing")
    assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})


def test_an_unknown_page_is_a_page(client: Client) -> None:
    response = client.get("/no-such-thing/")
    assert response.status_code == 404 and b"<html" in response.content
