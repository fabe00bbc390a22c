"""The HTTP service: predictions, explanations, limits, and helpful errors."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import OneVsAllClassifier, TextPipeline, TopKClassifier
from widemargin.data.tables import TableSpec
from widemargin.serve import Limits, make_app
from widemargin.serve.batches import Batches, Overloaded


@pytest.fixture(scope="module")
def model():
    y = np.arange(60) % 3
    X = np.eye(3)[y] + 0.1 * np.random.default_rng(0).normal(size=(60, 3))
    return TopKClassifier(random_state=0).fit(X, np.array(["red", "green", "blue"])[y])


@pytest.fixture
def client(model):
    with TestClient(make_app(model)) as client:
        yield client


def test_predictions_are_those_of_the_model(client, model):
    rows = [[1.0, 0.0, 0.2], [0.0, 0.3, 1.0]]
    answer = client.post("/predict", json={"rows": rows, "k": 2})
    assert answer.status_code == 200
    top = model.predict_topk(np.array(rows), 2)
    found = answer.json()["predictions"]
    assert [row["labels"] for row in found] == top.labels.tolist()
    np.testing.assert_allclose([row["scores"] for row in found], top.scores, rtol=1e-6)


def test_sparse_rows_are_the_same_as_dense_ones(client):
    dense = client.post("/predict", json={"rows": [[0.0, 0.5, 0.0]]}).json()
    sparse = client.post("/predict", json={"rows": [{"indices": [1], "values": [0.5]}]}).json()
    assert dense == sparse


def test_more_labels_than_there_are_give_all_of_them(client):
    found = client.post("/predict", json={"rows": [[0.0, 0.0, 0.0]], "k": 900}).json()["predictions"]
    assert len(found[0]["labels"]) == 3


def test_explanations_add_up_to_the_score(client, model):
    row = [0.2, 0.9, 0.4]
    found = client.post("/predict", json={"rows": [row], "k": 1, "explain": True}).json()["predictions"][0]
    why = found["explanations"][0]
    assert why == model.explain(np.array([row]), k=1).to_dict(10)["labels"][0]


def test_texts_are_taken_by_a_model_of_texts():
    texts, y = ["fresh bread", "a cake", "an engine", "the gearbox"], ["food", "food", "cars", "cars"]
    pipeline = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(texts, y)
    with TestClient(make_app(pipeline)) as client:
        found = client.post("/predict", json={"texts": ["bread", "engine"], "k": 1, "explain": True}).json()
        assert [row["labels"] for row in found["predictions"]] == [["food"], ["cars"]]
        assert "bread" in json.dumps(found["predictions"][0]["explanations"])
        assert client.get("/model").json()["takes_text"]


def test_a_calibrated_model_gives_probabilities(model):
    y = np.array(["red", "green", "blue"])[np.arange(60) % 3]
    X = np.eye(3)[np.arange(60) % 3] + 0.3 * np.random.default_rng(2).normal(size=(60, 3))
    calibrated = TopKClassifier(random_state=0).fit(X, y).calibrate(X, y, cv=3)
    with TestClient(make_app(calibrated)) as client:
        found = client.post("/predict", json={"rows": X[:5].tolist(), "k": 3}).json()["predictions"]
    np.testing.assert_allclose([sum(row["probabilities"]) for row in found], 1.0, rtol=1e-6)
    expected = calibrated.label_proba(X[:5], calibrated.predict_topk(X[:5], 3).indices)
    np.testing.assert_allclose([row["probabilities"] for row in found], expected, rtol=1e-6)


def test_facts_health_and_meters(client, model):
    assert client.get("/health").json() == {"status": "ok"}
    facts = client.get("/model").json()
    assert (facts["kind"], facts["labels"], facts["features"]) == ("TopKClassifier", 3, 3)
    assert facts["certified_gap"] == model.certificate_.relative_gap
    client.post("/predict", json={"rows": [[0.0, 0.0, 0.0]] * 4})
    lines = client.get("/metrics").text.splitlines()
    assert "widemargin_rows_total 4" in lines
    assert 'widemargin_requests_total{status="200"} 3' in lines


def test_facts_have_the_values_of_the_fit(client):
    facts = client.get("/model").json()
    assert (facts["C"], facts["rank_scale"], facts["decision"]) == (1.0, None, None)
    rng = np.random.default_rng(0)
    Y = (rng.random((150, 4)) < 0.4).astype(int)
    rows = np.hstack([Y, np.ones((150, 1))]) + 0.4 * rng.normal(size=(150, 5))
    chosen = OneVsAllClassifier(C="auto", rank_scale="auto", decision="threshold", tune_decision=True).fit(rows, Y)
    with TestClient(make_app(chosen)) as other:
        facts = other.get("/model").json()
    assert (facts["C"], facts["rank_scale"]) == (chosen.C_, chosen.rank_scale_)
    assert facts["decision"] == chosen.decision_.describe()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "send either rows or texts"),
        ({"rows": []}, "at least one row"),
        ({"rows": [[1.0]]}, "row 0 has 1 values; send one value for each of the 3 features"),
        ({"rows": [{"indices": [3], "values": [1.0]}]}, "row 0 contains feature 3"),
        ({"rows": [{"indices": [0, 0], "values": [1.0, 2.0]}]}, "a feature twice"),
        ({"rows": [{"indices": [0], "values": []}]}, "same length"),
        ({"rows": [[0.0, 0.0, 0.0]], "kk": 3}, "kk"),
        ({"rows": [[0.0, 0.0, 0.0]], "k": 0}, "greater than or equal to 1"),
        ({"texts": ["hello"]}, "not trained on text"),
        ({"rows": [[0.0, 0.0, 0.0]], "texts": ["hello"]}, "either rows or texts"),
        ({"rows": [[0.0, 0.0, 0.0]] * 21, "explain": True}, "at most 20 rows"),
        ({"rows": [[0.0, 0.0, 0.0]] * 1001}, "at most 1000"),
    ],
)
def test_bad_requests_get_an_error_that_says_what_is_wrong(client, body, reason):
    answer = client.post("/predict", json=body)
    assert answer.status_code == 422
    assert reason in answer.text


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[[[[", b'{"rows": [[NaN, 0, 0]]}', b'{"rows": [[1e999, 0, 0]]}'])
def test_malformed_json_is_refused(client, body):
    answer = client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


def test_a_body_that_is_too_large_is_refused(model):
    with TestClient(make_app(model, limits=Limits(body_mb=0.001))) as client:
        assert client.post("/predict", json={"rows": [[0.0] * 3] * 900}).status_code == 413
        assert client.post("/predict", content=(b"x" * 600 for _ in range(5))).status_code == 413  # without a length
        assert client.post("/predict", json={"rows": [[0.0] * 3]}).status_code == 200


def test_a_body_that_does_not_arrive_is_refused_and_others_are_answered(model):
    app = make_app(model, limits=Limits(body_seconds=0.2))

    async def slow():
        sent = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/predict",
            "headers": [],
            "query_string": b"",
            "client": ("c", 1),
        }

        async def receive():
            await asyncio.Event().wait()  # for ever

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)
        return sent

    assert asyncio.run(slow())[0]["status"] == 408


def test_a_token_is_asked_for_but_not_for_health(model):
    with TestClient(make_app(model, token="secret")) as client:
        assert client.get("/health").status_code == 200
        refused = client.get("/model")
        assert refused.status_code == 401
        assert "Bearer" in refused.headers["www-authenticate"]
        assert client.get("/model", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/model", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_a_client_that_asks_too_often_is_refused(model):
    with TestClient(make_app(model, limits=Limits(requests_per_second=0.001, burst=2))) as client:
        assert [client.get("/model").status_code for _ in range(3)] == [200, 200, 429]
        assert client.get("/health").status_code == 200


def test_requests_that_come_together_are_predicted_together():
    sizes, gate = [], threading.Event()

    def predict(rows, k):
        gate.wait()
        rows = [row for part in rows for row in part]
        sizes.append(len(rows))
        return [[(row, place) for place in range(k)] for row in rows]

    async def main():
        batches = Batches(predict, most_rows=8, most_waiting=100)
        batches.start()
        first = asyncio.create_task(batches.ask(["a"], 1, 1))
        while batches.n_batches < 1:  # until its batch has started
            await asyncio.sleep(0)
        others = [asyncio.create_task(batches.ask([f"{n}", f"{n}'"], 2, 2)) for n in range(5)]
        while batches.n_waiting < 10:
            await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(first, *others)
        await batches.stop()
        return answers

    answers = asyncio.run(main())
    assert sizes == [1, 8, 2]
    assert answers[0] == [[("a", 0)]]
    assert answers[5] == [[("4", 0), ("4", 1)], [("4'", 0), ("4'", 1)]]


def test_a_full_queue_refuses_and_an_error_reaches_those_who_asked():
    def predict(rows, k):
        raise ValueError("no such row")

    async def main():
        batches = Batches(predict, most_rows=8, most_waiting=3)
        waiting = [asyncio.create_task(batches.ask(["a", "b"], 2, 1))]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await batches.ask(["c", "d"], 2, 1)
        batches.start()
        with pytest.raises(ValueError, match="no such row"):
            await waiting[0]
        await batches.stop()

    asyncio.run(main())


def test_answers_do_not_depend_on_the_company(client):
    rows = np.random.default_rng(1).normal(size=(50, 3)).tolist()
    together = client.post("/predict", json={"rows": rows, "k": 3}).json()["predictions"]
    alone = [client.post("/predict", json={"rows": [row], "k": 3}).json()["predictions"][0] for row in rows]
    assert together == alone


def test_texts_may_be_objects_with_the_columns_of_the_table():
    texts, y = ["fresh\nbread", "a\ncake", "an\nengine", "the\ngearbox"], ["food", "food", "cars", "cars"]
    pipeline = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(texts, y)
    with TestClient(make_app(pipeline)) as client:
        answer = client.post("/predict", json={"texts": [{"title": "a", "body": "cake"}]})
        assert answer.status_code == 422
        assert "not trained on a table" in answer.json()["detail"]
    pipeline[-1].table_ = TableSpec(("title", "body"), "tags")
    with TestClient(make_app(pipeline)) as client:
        record = {"id": "7", "title": "a", "body": "cake"}
        both = client.post("/predict", json={"texts": [record, "a\ncake"]}).json()["predictions"]
        assert both[0] == both[1]
        answer = client.post("/predict", json={"texts": [{"title": "a"}]})
        assert answer.json()["detail"] == "column 'body' is missing; the text columns are title, body"
