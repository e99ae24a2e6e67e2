import json
import re

from tests.app.e2e.refusals import Api


def test_the_api_reference_names_no_other_host(lasting_api: Api) -> None:
    del lasting_api.client.headers["Authorization"]
    page = lasting_api.client.get("/docs")
    assert page.status_code == 200
    assert "//" not in page.text.removeprefix("<!doctype html>")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    links = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert len(links) >= 4
    for link in links:
        assert lasting_api.client.get(link).status_code == 200, link
    assert lasting_api.client.get("/redoc").status_code == 404


def test_the_document_shows_both_forms_of_a_body(lasting_api: Api) -> None:
    document = lasting_api.client.get("/openapi.json").json()
    assert "/v1/collections/{collection}/items/picture" not in document["paths"]
    for path in ("/items", "/search/{source}-to-{target}"):
        content = document["paths"]["/v1/collections/{collection}" + path]["post"]["requestBody"]["content"]
        assert set(content) == {"application/json", "multipart/form-data"}
        for body in content.values():
            assert body["example"]
            schema = body["schema"]
            if "$ref" in schema:
                schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
            assert set(body["example"]) <= set(schema["properties"])
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
