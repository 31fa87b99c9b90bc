"""The OpenAPI document says of every route what it reads and every error that it can answer."""

from typing import Any

import httpx
import pytest
import schemathesis
from fastapi.routing import APIRoute

from deployments.gateway import Gateway
from deployments.http import create_app
from deployments.openai.errors import ApiError, ErrorCode
from deployments.watch import EngineWatch
from tests.rigs.http_server import MODEL, FakeServer, LocalClient

_NO_BODY = frozenset({"/admin/drain"})


@pytest.fixture
def document(http: httpx.Client) -> dict[str, Any]:
    return http.get("/openapi.json").raise_for_status().json()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (path, method.upper()): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_each_route_is_in_it_and_the_other_way_round(server: FakeServer, document: dict[str, Any]):
    client = LocalClient(server.replica)
    app = create_app(Gateway(client, EngineWatch(client), MODEL))
    routes = {
        (route.path_format, method)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert len(routes) == sum(len(getattr(route, "methods", ["?"])) for route in app.routes)
    assert operations(document).keys() == routes
    assert {"/v1/chat/completions", "/openapi.json", "/livez"} <= document["paths"].keys()


def test_whatever_is_sent_to_has_a_body_with_a_schema(document: dict[str, Any]):
    for (path, method), operation in operations(document).items():
        sends = method in ("POST", "PUT", "PATCH") and path not in _NO_BODY
        assert ("requestBody" in operation) is sends, path


def test_every_code_is_said_at_its_status_where_a_body_is_read(document: dict[str, Any]):
    said = operations(document)["/v1/chat/completions", "POST"]["responses"]
    for code in ErrorCode:
        status = str(ApiError(code, "").status)
        assert f"`{code}`" in said[status]["description"]
        assert said[status]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")
    fields = document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]
    assert fields["code"]["enum"] == [code.value for code in ErrorCode]


def test_every_parameter_of_a_query_is_in_it_and_the_other_way_round(
    http: httpx.Client, document: dict[str, Any]
):
    for path in ("/policy", "/policy/decisions", "/policy/explain", "/policy/signals"):
        documented = {
            parameter["name"]
            for parameter in operations(document)[path, "GET"].get("parameters", [])
            if parameter["in"] == "query"
        }
        refusal = http.get(path, params={"nothing": "1"}).json()["error"]["message"]
        read = {
            name for name in ("since", "replica", "reason", "format", "limit") if name in refusal
        }
        assert read == documented, path


def test_all_but_probes_ask_for_a_key(document: dict[str, Any]):
    asks = {
        path for (path, _), operation in operations(document).items() if "security" in operation
    }
    assert document["paths"].keys() - asks == {"/livez", "/readyz", "/startupz", "/health"}


def test_the_forms_that_clients_send_are_in_the_schema(document: dict[str, Any]):
    schemas = document["components"]["schemas"]
    stop = schemas["ChatBody"]["properties"]["stop"]["anyOf"]
    assert {"string", "array", "null"} == {form.get("type") for form in stop}
    content = schemas["Message"]["properties"]["content"]["anyOf"]
    assert {"string", "array", "null"} == {form.get("type") for form in content}


def test_a_schema_reader_finds_all_of_it(document: dict[str, Any]):
    found = {
        (operation.path, operation.method.upper())
        for result in schemathesis.openapi.from_dict(document).get_all_operations()
        if (operation := result.ok())
    }
    assert found == operations(document).keys()
