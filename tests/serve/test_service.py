"""The HTTP service: predictions, explanations, limits, and helpful errors."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import HierarchicalClassifier, OneVsAllClassifier, TextPipeline, TopKClassifier
from widemargin.data.tables import TableSpec
from widemargin.serve import Limits, make_app
from widemargin.serve.app import Answer, Meters, Question
from widemargin.serve.batches import Batches, Overloaded
from widemargin.serve.lines import NDJSON


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


@pytest.mark.parametrize("k", [1, 2, 5])
def test_labels_restrict_the_ranking(client, model, k):
    rows = np.random.default_rng(3).normal(size=(40, 3))
    asked = {"rows": rows.tolist(), "k": k, "labels": ["red", "green", "red"]}
    found = client.post("/predict", json=asked).json()["predictions"]
    scores = model.decision_function(rows)
    places = [model.classes_.tolist().index(label) for label in ("green", "red")]
    for row, prediction in zip(scores, found, strict=True):
        best = sorted(places, key=lambda place: -row[place])[:k]
        assert prediction["labels"] == model.classes_[best].tolist()
        np.testing.assert_allclose(prediction["scores"], row[best], rtol=1e-6)


def test_labels_restrict_the_ranking_in_small_blocks_of_rows(client, monkeypatch):
    asked = {"rows": np.random.default_rng(3).normal(size=(40, 3)).tolist(), "k": 2, "labels": ["red", "green"]}
    whole = client.post("/predict", json=asked).json()
    monkeypatch.setattr("widemargin.serve.app.RANKED_PLACES", 5)
    assert client.post("/predict", json=asked).json() == whole


@pytest.mark.parametrize(
    ("make", "own_scores"),
    [
        (lambda: OneVsAllClassifier(rank_scale=0.5, normalize=True), True),
        (lambda: TopKClassifier(), True),
        (lambda: TopKClassifier(kernel="rbf"), False),
        (lambda: HierarchicalClassifier(taxonomy={"a": "top", "b": "top", "c": "top", "d": "top"}), False),
    ],
)
def test_chosen_labels_have_the_scores_and_the_order_of_the_whole_ranking(monkeypatch, make, own_scores):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(80, 6)), rng.choice(list("abcd"), size=80)
    model, rows = make().fit(X, y), np.vstack([rng.normal(size=(20, 6)), np.zeros((1, 6))])
    top = model.predict_topk(sp.csr_array(rows), 4)  # as the service holds them
    expected = [
        [(label, score) for label, score in zip(labels, scores, strict=True) if label in "acd"][:2]
        for labels, scores in zip(top.labels.tolist(), top.scores.tolist(), strict=True)
    ]
    rankings, predict_topk = [], type(model).predict_topk
    monkeypatch.setattr(type(model), "predict_topk", lambda *asked: rankings.append(1) or predict_topk(*asked))
    with TestClient(make_app(model)) as client:
        asked = {"rows": rows.tolist(), "k": 2, "labels": ["d", "a", "c"]}
        found = client.post("/predict", json=asked).json()["predictions"]
    assert [list(zip(row["labels"], row["scores"], strict=True)) for row in found] == expected
    assert (not rankings) == own_scores  # two of many labels must not cost a ranking of all


def test_true_is_not_the_label_one():
    numbers = OneVsAllClassifier().fit(np.eye(3), [0, 1, 2])
    flags = OneVsAllClassifier().fit([[0.0], [1.0]], [False, True])
    for model, n_features, right, wrong in ((numbers, 3, 1, True), (flags, 1, True, 1)):
        with TestClient(make_app(model)) as client:
            asked = {"rows": [[0.0] * n_features]}
            found = client.post("/predict", json=asked | {"labels": [right]}).json()["predictions"]
            assert found[0]["labels"] == [right]
            answer = client.post("/predict", json=asked | {"labels": [wrong]})
        assert answer.status_code == 422
        assert f"unknown label {wrong!r}" in answer.text


def test_labels_may_be_numbers_and_have_probabilities_and_explanations():
    X = np.eye(3)[np.arange(60) % 3] + 0.3 * np.random.default_rng(2).normal(size=(60, 3))
    model = TopKClassifier(random_state=0).fit(X, np.arange(60) % 3).calibrate(X, np.arange(60) % 3, cv=3)
    with TestClient(make_app(model)) as client:
        asked = {"rows": X[:1].tolist(), "labels": [2, 0], "explain": True}
        found = client.post("/predict", json=asked).json()["predictions"][0]
        assert client.post("/predict", json=asked | {"labels": ["2"]}).status_code == 422
    everything = model.predict_proba(X[:1])[0]
    assert sorted(found["labels"]) == [0, 2]
    np.testing.assert_allclose(found["probabilities"], everything[found["labels"]], rtol=1e-6)
    assert [why["label"] for why in found["explanations"]] == found["labels"]


def test_labels_of_two_classes_and_of_several_labels_per_row():
    two = OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"])
    with TestClient(make_app(two)) as client:
        found = client.post("/predict", json={"rows": [[2.0]], "labels": ["no"]}).json()["predictions"][0]
    assert found["labels"] == ["no"]
    np.testing.assert_allclose(found["scores"], -two.decision_function([[2.0]]), rtol=1e-6)
    rng = np.random.default_rng(0)
    Y = (rng.random((80, 6)) < 0.4).astype(int)
    several = OneVsAllClassifier().fit(Y + 0.3 * rng.normal(size=Y.shape), Y)
    rows = rng.normal(size=(5, 6))
    with TestClient(make_app(several)) as client:
        asked = {"rows": rows.tolist(), "k": 2, "labels": [5, 1, 3]}
        found = client.post("/predict", json=asked).json()["predictions"]
    for row, prediction in zip(several.decision_function(rows), found, strict=True):
        assert prediction["labels"] == sorted([5, 1, 3], key=lambda label: -row[label])[:2]


def test_labels_that_cannot_be_written_as_utf8_are_answered():
    odd = OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "\ud800"])
    with TestClient(make_app(odd)) as client:
        answer = client.post("/predict", json={"rows": [[2.0]], "k": 1})
    assert json.loads(answer.content)["predictions"][0]["labels"] == ["\ud800"]


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
        ({"rows": [[0.0, 0.0, 0.0]], "labels": ["red", "mauve"]}, "unknown label 'mauve'; send labels of this model"),
        ({"rows": [[0.0, 0.0, 0.0]], "labels": []}, "at least 1 item"),
        ({"rows": [[0.0, 0.0, 0.0]], "labels": "red"}, "list_type"),
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


@pytest.mark.parametrize(
    "body",
    [
        {"rows": [["x"] * 5000] * 2},
        {"rows": ["x"] * 900},
        {"rows": [{"indices": ["x"] * 5000, "values": ["x"] * 5000}]},
        {"texts": [{str(key): 1 for key in range(5000)}]},
        {"rows": [[0.0, 0.0, 0.0]], "labels": [[]] * 5000},
        {str(key): 1 for key in range(5000)},
    ],
)
def test_many_errors_of_a_body_are_not_listed(client, body):
    with pytest.raises(ValidationError) as caught:
        Question.model_validate_json(json.dumps(body))
    count = caught.value.error_count()
    answer = client.post("/predict", json=body)
    assert answer.status_code == 422
    listed = answer.json()["detail"]
    if isinstance(next(iter(body.values())), int) or "texts" in body:  # objects do not stop at their first error
        assert [one["msg"] for one in listed] == [f"{count:,} keys or values are wrong"]
    else:
        assert len(listed) == count < 10


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


def test_the_token_protects_everything_but_health(model):
    app = make_app(model, token="secret")
    with TestClient(app) as client:
        paths = [(method, path) for path, methods in app.openapi()["paths"].items() for method in methods]
        assert ("post", "/batch") in paths
        for method, path in [*paths, ("get", "/docs"), ("get", "/openapi.json"), ("get", "/no-such-page")]:
            expected = 200 if path == "/health" else 401
            assert client.request(method, path).status_code == expected, path
            for header in ("secret", "Bearer", "Bearer secre", "Bearer secrets", "bearer\u00e9"):
                given = {"Authorization": header.encode()}
                assert client.request(method, path, headers=given).status_code == expected, path


def test_refused_requests_are_counted(model):
    with TestClient(make_app(model, token="secret")) as client:
        client.post("/predict", json={"rows": [[0.0, 0.0, 0.0]]})
        lines = client.get("/metrics", headers={"Authorization": "Bearer secret"}).text.splitlines()
    assert 'widemargin_requests_total{status="401"} 1' in lines


def test_a_client_that_asks_too_often_is_refused(model):
    with TestClient(make_app(model, limits=Limits(requests_per_second=0.001, burst=2))) as client:
        assert [client.get("/model").status_code for _ in range(3)] == [200, 200, 429]
        assert client.get("/health").status_code == 200


def test_requests_that_come_together_are_predicted_together():
    sizes, gate = [], threading.Event()

    def predict(rows, k, labels):
        gate.wait()
        sizes.append(len(rows))
        return [[(row, place) for place in range(k)] for row in rows]

    async def main():
        batches = Batches(predict, most_rows=8, most_waiting=100)
        batches.start()
        first = asyncio.create_task(batches.ask(["a"], 1))
        while batches.n_batches < 1:  # until its batch has started
            await asyncio.sleep(0)
        others = [asyncio.create_task(batches.ask([f"{n}", f"{n}'"], 2)) for n in range(5)]
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


def test_a_batch_holds_the_requests_that_ask_the_same():
    seen, gate = [], threading.Event()

    def predict(rows, k, labels):
        gate.wait()
        chosen = None if labels is None else tuple(labels.tolist())
        seen.append((rows, k, chosen))
        return [(row, k, chosen) for row in rows]

    async def main():
        batches = Batches(predict, most_rows=8, most_waiting=100)
        asked = [("a", 1, None), ("b", 2, None), ("c", 1, (0, 3)), ("d", 1, None), ("e", 1, (0, 3))]
        tasks = [
            asyncio.create_task(batches.ask([row], k, labels=None if labels is None else np.array(labels)))
            for row, k, labels in asked
        ]
        await asyncio.sleep(0)
        batches.start()
        gate.set()
        answers = await asyncio.gather(*tasks)
        await batches.stop()
        return asked, answers

    asked, answers = asyncio.run(main())
    assert seen == [(["a", "d"], 1, None), (["b"], 2, None), (["c", "e"], 1, (0, 3))]
    assert answers == [[one] for one in asked]


@pytest.mark.parametrize(
    ("rows", "asked", "quick"),
    [
        (1, {"size": 1}, True),
        (1, {"size": 10**15}, False),  # a long row
        (10**4, {"size": 10**4}, False),  # many short rows, whose time per value is longer
        (1, {"size": 1, "k": 2}, False),  # other lists, whose time is not known yet
        (1, {"size": 1, "labels": np.array([0])}, False),
    ],
)
def test_only_batches_that_are_expected_to_be_quick_are_predicted_on_the_event_loop(monkeypatch, rows, asked, quick):
    threads, clock = [], iter([0.0, 0.005, 0.0, 0.0])  # the first batch, of one row, takes 5 ms
    monkeypatch.setattr("widemargin.serve.batches.time.thread_time", lambda: next(clock))

    def predict(rows, k, labels):
        threads.append(threading.current_thread())
        return rows

    async def main():
        batches = Batches(predict, most_rows=8, most_waiting=10**5)
        batches.start()
        await batches.ask(["a"], 1, size=10**9)
        assert await batches.ask(["a"] * rows, **{"k": 1, **asked}) == ["a"] * rows
        await batches.stop()

    asyncio.run(main())
    assert [thread is threading.main_thread() for thread in threads] == [False, quick]


def test_a_full_queue_refuses_and_an_error_reaches_those_who_asked():
    def predict(rows, k, labels):
        raise ValueError("no such row")

    async def main():
        batches = Batches(predict, most_rows=8, most_waiting=3)
        waiting = [asyncio.create_task(batches.ask(["a", "b"], 1))]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await batches.ask(["c", "d"], 1)
        batches.start()
        with pytest.raises(ValueError, match="no such row"):
            await waiting[0]
        await batches.stop()

    asyncio.run(main())


def test_an_unexpected_error_reaches_those_who_asked_and_the_others_are_answered(model, monkeypatch):
    def predict(X, k):
        if X[0, 0] == 9.0:
            raise KeyError("no such thing")
        return TopKClassifier.predict_topk(model, X, k)

    monkeypatch.setattr(model, "predict_topk", predict, raising=False)
    with TestClient(make_app(model), raise_server_exceptions=False) as client:
        assert client.post("/predict", json={"rows": [[9.0, 0.0, 0.0]]}).status_code == 500
        assert client.post("/predict", json={"rows": [[1.0, 0.0, 0.0]]}).status_code == 200
        assert client.get("/health").status_code == 200


def test_nobody_waits_and_health_fails_after_the_work_has_ended(model):
    app = make_app(model)

    async def main():
        async with app.router.lifespan_context(app):
            batches = app.state.batches
            batches._task.cancel()
            waiting = asyncio.create_task(batches.ask([[0.0, 0.0, 0.0]], 1))
            with pytest.raises(RuntimeError, match="has ended"):
                await waiting
            with pytest.raises(RuntimeError, match="has ended"):
                await batches.ask([[0.0, 0.0, 0.0]], 1)

    asyncio.run(main())
    answer = TestClient(app, raise_server_exceptions=False).get("/health")  # without a new start
    assert (answer.status_code, answer.json()) == (503, {"status": "failed"})


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


def test_the_description_has_the_bodies_and_answers(client):
    found = client.get("/openapi.json").json()
    predict, batch = (found["paths"][path]["post"] for path in ("/predict", "/batch"))
    question = found["components"]["schemas"]["Question"]
    body = predict["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/Question"}
    assert set(question["properties"]) == {"rows", "texts", "k", "labels", "explain"}
    answer = predict["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/Answer"}
    assert {"401", "408", "413", "422", "429", "503"} <= set(predict["responses"])
    assert list(batch["requestBody"]["content"]) == list(batch["responses"]["200"]["content"]) == [NDJSON]


def test_an_answer_has_the_described_form(client):
    found = client.post("/predict", json={"rows": [[1.0, 0.0, 0.2]], "k": 2, "explain": True}).json()
    assert Answer.model_validate(found, strict=True).model_dump() == found


def test_each_line_of_a_batch_is_answered(client):
    asked = [{"rows": [[0.2, 0.9, 0.4]], "k": 1}, {"rows": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "labels": ["red"]}]
    expected = [client.post("/predict", json=one).json() for one in asked]
    first, second = (json.dumps(one).encode() for one in asked)
    body = first + b"\n{\n\n" + second + b'\r\n{"rows": [[1.0]]}\n{"rows": [[0, 0, 0]], "labels": ["mauve"]}\n' + first
    answer = client.post("/batch", content=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == NDJSON
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [lines[0], lines[2], lines[5]] == [expected[0], expected[1], expected[0]]
    assert [(lines[place]["line"], place) for place in (1, 3, 4)] == [(2, 1), (5, 3), (6, 4)]
    assert "Invalid JSON" in lines[1]["detail"][0]["msg"]
    assert "row 0 has 1 values" in lines[3]["detail"]
    assert "unknown label 'mauve'" in lines[4]["detail"]


@given(
    lines=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [b'{"rows": [[0, 1, 0]]}', b'{"rows": [[0, 1]]}', b"[" * 500, b'{"rows": [[1e400, 0, 0]]}']
            ),
        ),
        max_size=12,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_get_one_answer_per_line(client, lines):
    body = b"\n".join(lines)
    answer = client.post("/batch", content=body)
    assert answer.status_code == 200
    sent = [(number, line) for number, line in enumerate(body.split(b"\n"), start=1) if line.strip()]
    for (number, line), found in zip(sent, map(json.loads, answer.text.splitlines()), strict=True):
        if line == b'{"rows": [[0, 1, 0]]}':
            assert list(found) == ["predictions"]
        else:
            assert found["line"] == number


def test_a_line_that_is_too_long_does_not_stop_the_others(model):
    short = json.dumps({"rows": [[0.0, 0.0, 0.0]], "k": 1}).encode()
    with TestClient(make_app(model, limits=Limits(body_mb=0.0001))) as client:
        body = short + b"\n" + b"x" * 101 + b"\n" + short
        lines = [json.loads(line) for line in client.post("/batch", content=body).text.splitlines()]
        pieces = client.post("/batch", content=(body[start : start + 7] for start in range(0, len(body), 7)))
        more = client.post("/batch", content=(short + b"\n" for _ in range(50)))  # far beyond 100 bytes
    assert lines[1] == {"line": 2, "detail": "the line is longer than 100 bytes; send fewer rows per line"}
    assert lines[0] == lines[2] == json.loads(more.text.splitlines()[-1])
    assert [json.loads(line) for line in pieces.text.splitlines()] == lines


async def _stream(app, receive):
    """What the application sends to a client of /batch."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/batch", "headers": [], "query_string": b"", "client": None}
    async with app.router.lifespan_context(app):
        await app(scope, lambda: receive(sent), send)
    return sent


def test_lines_are_answered_before_the_body_ends(model):
    """The next line is sent only after the answer to the last one has arrived; so nobody waits for the whole body."""
    line = json.dumps({"rows": [[0.2, 0.9, 0.4]], "k": 1}).encode() + b"\n"
    n_lines, pieces = 50, []

    async def receive(sent):
        answers = sum(message.get("body", b"").count(b"\n") for message in sent)
        assert answers == len(pieces)
        pieces.append(line)
        return {"type": "http.request", "body": line, "more_body": len(pieces) < n_lines}

    sent = asyncio.run(_stream(make_app(model), receive))
    answers = b"".join(message.get("body", b"") for message in sent).splitlines()
    assert len(answers) == n_lines
    assert len(set(answers)) == 1
    assert [message.get("more_body") for message in sent[-2:]] == [True, False]


def test_memory_does_not_grow_with_a_stream(model):
    """A long stream holds no more objects after many lines than after a few."""
    line = json.dumps({"rows": [[0.2, 0.9, 0.4]], "k": 1}).encode() + b"\n"
    sizes, n_pieces = [], 300

    async def main():
        pieces = 0

        async def receive():
            nonlocal pieces
            pieces += 1
            if pieces in (100, n_pieces):
                sizes.append(tracemalloc.get_traced_memory()[0])
            return {"type": "http.request", "body": line * 40, "more_body": pieces < n_pieces}

        async def send(message):
            pass

        app = make_app(model)
        scope = {"type": "http", "method": "POST", "path": "/batch", "headers": [], "query_string": b"", "client": None}
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    tracemalloc.start()
    asyncio.run(main())
    tracemalloc.stop()
    assert sizes[1] - sizes[0] < 20 * len(line) * 40  # 8,000 lines came in between


def test_a_stream_that_stalls_ends_with_an_error(model):
    line = json.dumps({"rows": [[0.2, 0.9, 0.4]], "k": 1}).encode() + b"\n"
    pieces = iter([{"type": "http.request", "body": line + b"{", "more_body": True}])

    async def receive(sent):
        return next(pieces, None) or await asyncio.Event().wait()  # for ever

    sent = asyncio.run(_stream(make_app(model, limits=Limits(body_seconds=0.2)), receive))
    lines = [json.loads(line) for line in b"".join(message.get("body", b"") for message in sent).splitlines()]
    assert list(lines[0]) == ["predictions"]
    assert lines[1:] == [{"line": 2, "detail": "the line did not arrive within 0.2 s"}]
    assert sent[-1]["more_body"] is False
    assert (b"connection", b"close") in sent[0]["headers"]


def test_a_line_that_arrives_byte_by_byte_is_given_up(model):
    async def receive(sent):
        await asyncio.sleep(0.01)  # much less than the limit
        return {"type": "http.request", "body": b" ", "more_body": True}

    sent = asyncio.run(_stream(make_app(model, limits=Limits(body_seconds=0.2)), receive))
    lines = b"".join(message.get("body", b"") for message in sent).splitlines()
    assert [json.loads(line) for line in lines] == [{"line": 1, "detail": "the line did not arrive within 0.2 s"}]


def test_the_body_is_asked_for_before_the_response_starts(model):
    """Only then does the server send `100 Continue`, for which curl waits before it sends a large body."""
    before = []

    async def receive(sent):
        before.append(len(sent))
        return {"type": "http.request", "body": b"{}\n", "more_body": False}

    assert asyncio.run(_stream(make_app(model), receive))[0]["status"] == 200
    assert before == [0]


@pytest.mark.parametrize("more", [{}, {"explain": True}])
def test_answers_to_many_lines_in_one_piece_are_sent_in_groups(model, monkeypatch, more):
    monkeypatch.setattr("widemargin.serve.lines.MOST_PLACES", 6 if not more else 60)  # two lines of one row and k = 3
    lines = [json.dumps({"rows": [[0.0, 0.0, float(n)]], "k": 900} | more).encode() for n in range(5)]
    pieces = [{"type": "http.request", "body": b"\n".join(lines), "more_body": False}]

    async def receive(sent):
        return pieces.pop()

    sent = asyncio.run(_stream(make_app(model), receive))
    assert [message["body"].count(b"\n") for message in sent[1:]] == [2, 2, 1, 0]
    with TestClient(make_app(model)) as client:
        expected = [client.post("/predict", content=line).json() for line in lines]
    assert [json.loads(line) for line in b"".join(m["body"] for m in sent[1:]).splitlines()] == expected


def test_a_stream_whose_client_does_not_read_is_given_up(model):
    asked = []

    async def main():
        async def receive():
            asked.append(1)
            return {"type": "http.request", "body": b"{}\n", "more_body": True}

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()  # for ever

        app = make_app(model, limits=Limits(body_seconds=0.2))
        scope = {"type": "http", "method": "POST", "path": "/batch", "headers": [], "query_string": b"", "client": None}
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    asyncio.run(main())
    assert asked == [1]  # no more is read while answers are waiting


@pytest.mark.parametrize("raised", [MemoryError(), FloatingPointError("overflow")])
def test_a_line_that_cannot_be_computed_does_not_stop_the_others(model, monkeypatch, raised):
    def predict(X, k):
        if k == 2:
            raise raised
        return TopKClassifier.predict_topk(model, X, k)

    monkeypatch.setattr(model, "predict_topk", predict, raising=False)
    lines = [{"rows": [[0.0, 0.0, 0.0]], "k": k} for k in (1, 2, 3)]
    with TestClient(make_app(model)) as client:
        answer = client.post("/batch", content="\n".join(map(json.dumps, lines)))
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert found[1] == {"line": 2, "detail": str(raised) or "MemoryError"}
    assert list(found[0]) == list(found[2]) == ["predictions"]


def test_a_stream_waits_for_a_full_queue(model, monkeypatch):
    tries = []
    ask = Batches.ask

    async def refusing(self, rows, k, **more):
        tries.append(rows)
        if len(tries) <= 2:
            raise Overloaded
        return await ask(self, rows, k, **more)

    monkeypatch.setattr(Batches, "ask", refusing)
    with TestClient(make_app(model)) as client:
        answer = client.post("/batch", content=json.dumps({"rows": [[0.0, 0.0, 0.0]]}))
        assert "predictions" in answer.json()
        tries.clear()
        assert client.post("/predict", json={"rows": [[0.0, 0.0, 0.0]]}).status_code == 503


def test_processes_count_in_one_table():
    table = np.zeros((2, Meters.WIDTH))
    first, second = Meters(table, 0), Meters(table, 1)
    first.count(200, 0.004)
    second.count(200, 0.2)
    second.count(418, 0.2)
    second.note(rows=1, batches=1, waiting=4)
    second.note(rows=2, batches=2, waiting=0)
    Meters(table, 1).note(rows=5, batches=1, waiting=0)  # the worker was started again
    lines = first.text().splitlines()
    assert first.text() == second.text()
    for line in (
        'widemargin_requests_total{status="200"} 2',
        'widemargin_requests_total{status="500"} 1',
        "widemargin_rows_total 8",
        "widemargin_batches_total 3",
        "widemargin_waiting_rows 0",
        'widemargin_worker_requests_total{worker="1"} 2',
        'widemargin_request_seconds_bucket{le="0.005"} 1',
        'widemargin_request_seconds_bucket{le="+Inf"} 3',
        "widemargin_request_seconds_sum 0.404000",
    ):
        assert line in lines
