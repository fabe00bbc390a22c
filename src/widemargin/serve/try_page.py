"""The page to try the model, in front of the service.

    GET /       the page; it says nothing about the model and needs no token
    GET /try    what the page shows about the model
    POST /try   a text → its top labels and the terms that decided

Explanations cost as much as many predictions, so they are made one after another; few may wait.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from widemargin.page.page import answer, describe_model, service_page

__all__ = ["TextQuestion", "add_try_page"]

MOST_WAITING = 100
MOST_LABELS = 100


class TextQuestion(BaseModel):
    """A text whose labels are wanted."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(max_length=1_000_000, description="The text.")
    k: int = Field(default=5, ge=1, le=MOST_LABELS, description="Number of labels.")


def add_try_page(app: FastAPI, model: Any) -> None:
    """Add the page and its answers to a service.

    Parameters
    ----------
    app : FastAPI
        The service.
    model : fitted classifier or Pipeline
        The model that it serves.
    """
    page, takes_text, one_at_a_time = service_page(), hasattr(model, "steps"), asyncio.Semaphore(1)
    facts = _json(describe_model(model))  # now: tables of all characters take seconds, in which no request is answered
    waiting = 0

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show_page() -> HTMLResponse:
        headers = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-cache"}
        return HTMLResponse(page, headers=headers)

    @app.get("/try")
    async def show_facts() -> Response:
        """What the page shows about the model."""
        return Response(facts, media_type="application/json")

    @app.post("/try")
    async def try_text(question: TextQuestion) -> Response:
        """The top labels of a text, and the terms that decided."""
        nonlocal waiting
        if not takes_text:
            raise ValueError("this model was not trained on text; send numeric rows to /predict")
        if waiting >= MOST_WAITING:
            headers = {"Retry-After": "1"}
            return JSONResponse({"detail": "too many texts are waiting; try again in a moment"}, 503, headers)
        waiting += 1
        try:
            async with one_at_a_time:
                found = await run_in_threadpool(answer, model, question.text, question.k)
        finally:
            waiting -= 1
        return Response(_json(found), media_type="application/json")


def _json(values: dict[str, Any]) -> bytes:
    """JSON in ASCII, because a label may have half of a surrogate pair, which UTF-8 cannot hold."""
    return json.dumps(values).encode("ascii")
