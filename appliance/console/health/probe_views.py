"""/healthz and /readyz: for supervisors, load balancers and container health checks."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse

from ... import runtime, server_proof


async def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while the process and its event loop answer at all, whatever the engine does. To a command on this
    machine it also proves which data directory the server has (`server_proof`)."""
    response = HttpResponse("ok\n", content_type="text/plain; charset=utf-8")
    word = request.headers.get(server_proof.ASK)
    if word is not None:
        host, port = getattr(request, "scope", {}).get("server") or ("", 0)
        response.headers[server_proof.ANSWER] = (
            server_proof.proof(settings.SECRET_KEY, word, host, int(port or 0)) or ""
        )
    return response


async def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if every check is ok and so the engine can serve, 503 otherwise.

    Body: `{"status": "ok" | "not ok", "checks": {"<check>": "ok" | "not ok"}}`. The caller has not signed in, so there
    are no details: paths, sizes and error texts are only in the log.
    """
    try:
        health = runtime.window().health()
    except runtime.EngineNotRunning:
        return JsonResponse({"status": "not ok", "checks": {"engine": "not ok"}}, status=503)
    checks = {name: "ok" if check["ok"] else "not ok" for name, check in sorted(health.items())}
    ready = bool(checks) and all(check == "ok" for check in checks.values())
    return JsonResponse({"status": "ok" if ready else "not ok", "checks": checks}, status=200 if ready else 503)
