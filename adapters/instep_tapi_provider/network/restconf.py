"""RESTCONF reads (RFC 8040): the root from host-meta, the context whole, and its resources one by
one.
"""

from typing import Any

import msgspec
from aiohttp import web

from instep_tapi.facts.names import STREAMING_MODULE, strip_module
from instep_tapi_provider.context import CONTEXT_MEMBER, resource
from instep_tapi_provider.network.discovery import (
    fault_management_context,
    stream_admin_context,
    stream_context,
)
from instep_tapi_provider.network.site import RESTCONF_TYPE, Site, restconf_error

_STREAM_LISTS = ("available-stream", "supported-stream-type", "stream-monitor")


def host_meta(site: Site) -> web.Response:
    """Where RESTCONF is (RFC 8040 3.1, RFC 6415)."""
    href = site.settings.root or "/"
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<XRD xmlns="http://docs.oasis-open.org/ns/xri/xrd-1.0">\n'
        f'    <Link rel="restconf" href="{href}"/>\n</XRD>\n'
    )
    return web.Response(text=text, content_type="application/xrd+xml")


def read(site: Site, request: web.Request) -> web.Response:
    """Answer GET {root}/data/…; 404 where there is no such resource, as RFC 8040 3.5.3.1 forms
    paths.
    """
    raw = request.rel_url.raw_path.removeprefix(site.settings.root).removeprefix("/data")
    path = [segment for segment in raw.split("/") if segment]
    about_streams = len(path) > 1 and strip_module(path[1]).startswith("stream-")
    faults = site.faults
    if faults.restconf_status and not (about_streams and faults.restconf_spares_discovery):
        return restconf_error(faults.restconf_status, "operation-failed", "refused", raw)
    if path and strip_module(path[0]) != "context":
        return _nothing(raw)
    if faults.restconf_empty and not about_streams:
        if len(path) > 1:
            return _nothing(raw)
        return web.Response(
            body=msgspec.json.encode({CONTEXT_MEMBER: {}}), content_type=RESTCONF_TYPE
        )
    found = _find(site, request, path[1:])
    if found is None:
        return _nothing(raw)
    name, value = found
    if not path:
        body: Any = {"ietf-restconf:data": {CONTEXT_MEMBER: value}}
    else:
        body = {name: value}
    return web.Response(body=msgspec.json.encode(body), content_type=RESTCONF_TYPE)


def _find(site: Site, request: web.Request, path: list[str]) -> tuple[str, Any] | None:
    style = site.settings.discovery
    plain = [strip_module(segment) for segment in path]
    if (
        len(plain)
        == 2  # a list of the stream contexts without a key: no such path in the OpenAPI files
        and plain[0].startswith("stream-")
        and plain[1] in _STREAM_LISTS
        and not style.list_reads
    ):
        return None
    root = site.context.root
    asked = plain[0] if plain else ""
    if asked.startswith("stream-") or (not plain and style.in_context):
        scheme = "http" if style.protocol.lower().endswith("sse") else "ws"
        base = f"{scheme}{'s' if site.settings.tls else ''}://{request.host}{site.settings.root}"
        prefix = f"{STREAMING_MODULE}:" if style.prefixed_members else ""
        root = {**root, f"{prefix}stream-context": stream_context(site, base)}
        if asked:
            root[f"{prefix}stream-admin-context"] = stream_admin_context(site)
    if style.style.is_2_6 and (not plain or asked.startswith("fault-")):
        root = {**root, "tapi-fm:fault-management-context": fault_management_context(site)}
    found = resource(root, path)
    if found is None or style.prefixed_members or not path:
        return found
    return (strip_module(found[0]) if asked.startswith("stream-") else found[0]), found[1]


def _nothing(path: str) -> web.Response:
    return restconf_error(404, "invalid-value", "no such resource", path)
