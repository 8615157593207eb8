"""The API as a page for people: one HTML text without scripts and without addresses of other hosts."""

from collections.abc import Mapping
from html import escape
from typing import Any

from litestar import Request
from litestar.openapi.plugins import OpenAPIRenderPlugin

Schema = Mapping[str, Any]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font: 0.9em ui-monospace, monospace; }
h2 { margin-top: 2rem; border-top: 1px solid #8886; padding-top: 1rem; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #d8dade; } a { color: #8ab4f8; } }
"""

_BOUNDS = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "{} characters or more",
    "maxLength": "at most {} characters",
    "minItems": "{} entries or more",
    "maxItems": "at most {} entries",
}


class PageRenderPlugin(OpenAPIRenderPlugin):
    """Renders the OpenAPI document as such a page."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return api_page(openapi_schema).encode()


def api_page(api: Schema) -> str:
    """The page of an OpenAPI document as litestar makes it."""
    schemas = api.get("components", {}).get("schemas", {})
    operations = [
        _operation(path, method, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    title = escape(api["info"]["title"])
    return (
        f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{_STYLE}</style></head>"
        f"<body><h1>{title}</h1><p>{escape(api['info'].get('description', ''))}</p>"
        "<p>For programs: <a href='/docs/openapi.json'>JSON</a>, <a href='/docs/openapi.yaml'>YAML</a>.</p>"
        f"{''.join(operations)}{''.join(_object(name, schemas[name]) for name in sorted(schemas))}"
        "</body></html>"
    )


def _operation(path: str, method: str, operation: Schema) -> str:
    bodies = [content["schema"] for content in operation.get("requestBody", {}).get("content", {}).values()]
    rows = [("body", kind_of(schema), "") for schema in bodies]
    rows += [
        (escape(found["name"]), kind_of(found["schema"]), "") for found in operation.get("parameters", ())
    ]
    for status, response in operation.get("responses", {}).items():
        kinds = [kind_of(content["schema"]) for content in response.get("content", {}).values()]
        rows.append((escape(status), " or ".join(kinds), escape(response.get("description", ""))))
    heading = f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    return f"{heading}<p>{escape(operation.get('description', ''))}</p>{_table(rows)}"


def _object(name: str, schema: Schema) -> str:
    needed = schema.get("required", ())
    rows = [
        (f"<code>{escape(field)}</code>", kind_of(kind), "required" if field in needed else "")
        for field, kind in schema.get("properties", {}).items()
    ]
    return f"<h2 id='{escape(name)}'>{escape(name)}</h2>{_table(rows)}"


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def kind_of(schema: Schema) -> str:
    """A type in words, as HTML; a named one leads to its place."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f"<a href='#{name}'>{name}</a>"
    bounds = [text.format(escape(str(schema[key]))) for key, text in _BOUNDS.items() if key in schema]
    return ", ".join([_kind(schema), *bounds])


def _kind(schema: Schema) -> str:
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " or ".join(kind_of(one) for one in schema[key])
    if "enum" in schema:
        return " or ".join(
            f"<code>{escape(str(value))}</code>" for value in schema["enum"] if value is not None
        )
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else escape(kind)
