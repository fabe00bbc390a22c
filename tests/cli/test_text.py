"""Text on the command line: a table in, label names out, and the vectoriser in the model folder."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from command_line import invoke
from widemargin import OneVsAllClassifier, load, save

WORDS = {"food": "bread cake cream", "cars": "engine gearbox tyre", "sea": "wave boat sail", "snow": "ice cold white"}


def rows(n=40):
    """Titles and bodies with words of one or two labels; the first is the main one."""
    rng = np.random.default_rng(0)
    found = []
    for i in range(n):
        tags = rng.choice(list(WORDS), size=1 + i % 2, replace=False).tolist()
        vocabulary = [word for tag in tags for word in WORDS[tag].split()]
        text = [" ".join(rng.choice(vocabulary, size=3)) for _ in range(2)]
        found.append({"title": text[0], "body": f'"{text[1]}",\nend', "tags": "|".join(tags), "main": tags[0]})
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same rows as CSV, TSV, JSON lines and Parquet, and a model of their lists of labels."""
    path = tmp_path_factory.mktemp("text")
    table = rows()
    for name, delimiter in (("rows.csv", ","), ("rows.tsv", "\t"), ("semicolons.csv", ";")):
        with open(path / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(table[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(table)
    lists = [row | {"tags": row["tags"].split("|")} for row in table]
    (path / "rows.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lists)).encode()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lists), path / "rows.parquet")
    invoke("train", path / "rows.csv", *TEXT, "--labels", "tags", "--label-sep", "|", "-o", path / "model")
    return path


TEXT = ("--text", "title,body")


def test_the_model_is_the_pipeline_that_python_would_train(folder):
    table = rows()
    texts = [f"{row['title']}\n{row['body']}" for row in table]
    pipeline = make_pipeline(TfidfVectorizer(dtype=np.float32), OneVsAllClassifier(prune=0.01, normalize=True))
    pipeline.fit(texts, [row["tags"].split("|") for row in table])
    model = load(folder / "model")
    assert model.classes_.tolist() == sorted(WORDS)
    np.testing.assert_array_equal(model.decision_function(texts), pipeline.decision_function(texts))
    assert model.source_ == {"text": ["title", "body"], "labels": "tags", "label_sep": "|"}


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl.gz", "rows.parquet"])
def test_every_format_gives_the_same_model_and_predictions(folder, tmp_path, name):
    sep = () if name.endswith((".gz", ".parquet")) else ("--label-sep", "|")
    invoke("train", folder / name, *TEXT, "--labels", "tags", *sep, "-o", tmp_path / "model")
    first, second = (load(path / "model")[-1].coef_.toarray() for path in (folder, tmp_path))
    np.testing.assert_array_equal(first, second)
    expected = invoke("predict", folder / "model", folder / "rows.csv").stdout
    assert invoke("predict", folder / "model", folder / name).stdout == expected
    assert expected.split("\t")[0] in WORDS
    values = json.loads(invoke("evaluate", folder / "model", folder / name, *sep, "--json").stdout)
    assert values["precision"]["1"] == 1.0


def test_one_label_per_row_is_multiclass(folder, tmp_path):
    for method in ("one-vs-all", "top-k", "output-code", "per-node"):
        options = ("--labels", "main", "--method", method, "-o", tmp_path / method)
        invoke("train", folder / "rows.csv", *TEXT, *options)
        model = load(tmp_path / method)
        assert model[-1].kind_ == "multiclass"
        assert model.classes_.tolist() == sorted(WORDS)
    curve = json.loads(invoke("evaluate", tmp_path / "top-k", folder / "rows.csv", "--json").stdout)
    assert curve["top_k_accuracy"]["2"] > 0.9


def test_a_taxonomy_takes_text(folder, tmp_path):
    edges = [("warm", "all"), ("cool", "all"), ("food", "warm"), ("cars", "warm"), ("sea", "cool"), ("snow", "cool")]
    (tmp_path / "tree.tsv").write_text("".join(f"{child}\t{parent}\n" for child, parent in edges))
    options = ("--method", "orthogonal", "--taxonomy", tmp_path / "tree.tsv", "-o", tmp_path / "model")
    invoke("train", folder / "rows.csv", *TEXT, "--labels", "main", *options)
    values = json.loads(invoke("evaluate", tmp_path / "model", folder / "rows.csv", "--json").stdout)
    assert values["accuracy"] > 0.6
    line = invoke("predict", tmp_path / "model", folder / "rows.csv", "--k", 1, "--explain", "--json").stdout.split(
        "\n"
    )[0]
    steps = json.loads(line)["explanations"][0]["steps"]
    assert steps[0]["label"] in ("warm", "cool")


def test_options_of_the_vectoriser_reach_it_and_are_shown(folder, tmp_path):
    words = ("--analyzer", "char_wb", "--ngrams", "2,3", "--min-df", 2, "--max-df", 0.9, "--max-features", 50)
    more = ("--no-lowercase", "--sublinear-tf", "--strip-accents", "unicode", "--stop-words", "english")
    invoke("train", folder / "rows.csv", *TEXT, "--labels", "main", *words, *more, "-o", tmp_path / "model")
    vectorizer = load(tmp_path / "model")[0]
    expected = {
        "analyzer": "char_wb",
        "ngram_range": (2, 3),
        "min_df": 2,
        "max_df": 0.9,
        "max_features": 50,
        "lowercase": False,
        "sublinear_tf": True,
        "strip_accents": "unicode",
        "stop_words": "english",
    }
    assert vectorizer.get_params() == TfidfVectorizer(dtype=np.float32, **expected).get_params()
    text = json.loads(invoke("inspect", tmp_path / "model", "--json").stdout)["text"]
    assert text["columns"] == ["title", "body"]
    assert text["terms"] == 50
    assert text["options"] == expected | {"ngram_range": [2, 3]}
    assert "tf-idf of 50 terms" in invoke("inspect", tmp_path / "model").stdout
    assert invoke("inspect", folder / "model", "--label", "food").stdout.count("bread") == 1


def test_explanations_name_terms(folder):
    output = invoke("predict", folder / "model", folder / "rows.csv", "--k", 1, "--explain").stdout
    label = output.split("\t")[0]
    assert any(word in output.split("\n")[2] for word in WORDS[label].split())


def test_columns_and_delimiters_may_be_others_than_in_training(folder, tmp_path):
    renamed = (folder / "semicolons.csv").read_text().replace("title;body;tags", "headline;story;topics")
    (tmp_path / "new.csv").write_text(renamed)
    options = ("--text", "headline,story", "--delimiter", ";")
    expected = invoke("predict", folder / "model", folder / "rows.csv").stdout
    assert invoke("predict", folder / "model", tmp_path / "new.csv", *options).stdout == expected
    invoke("evaluate", folder / "model", tmp_path / "new.csv", *options, "--labels", "topics")
    message = invoke("predict", folder / "model", tmp_path / "new.csv", "--delimiter", ";", exit_code=1).stderr
    assert "column 'title' is not in" in message


@pytest.mark.slow
def test_a_model_reads_tables_with_the_delimiter_of_its_training_data(folder, tmp_path):
    data = folder / "semicolons.csv"
    columns = (*TEXT, "--labels", "tags", "--label-sep", "|", "--delimiter", ";")
    invoke("train", data, *columns, "-o", tmp_path / "model")
    expected = invoke("predict", folder / "model", folder / "rows.csv").stdout
    assert invoke("predict", tmp_path / "model", data).stdout == expected
    evaluated = json.loads(invoke("evaluate", tmp_path / "model", data, "--json").stdout)
    assert evaluated == json.loads(invoke("evaluate", folder / "model", folder / "rows.csv", "--json").stdout)
    invoke("report", tmp_path / "model", data, "-o", tmp_path / "report.html")
    # Tables of other formats are read as usual, and options override the model.
    for name in ("rows.tsv", "rows.jsonl.gz", "rows.parquet"):
        assert invoke("predict", tmp_path / "model", folder / name).stdout == expected
    assert invoke("predict", tmp_path / "model", folder / "rows.csv", "--delimiter", ",").stdout == expected


@pytest.mark.slow
def test_a_model_reads_tables_with_the_quotes_of_its_training_data(tmp_path):
    (tmp_path / "t.tsv").write_text('title\tbody\tmain\n"bread" now\t-\tfood\n"engine\t-\tcars\n')
    invoke("train", tmp_path / "t.tsv", *TEXT, "--labels", "main", "--no-quotes", "-o", tmp_path / "model")
    labels = invoke("predict", tmp_path / "model", tmp_path / "t.tsv", "--k", 1).stdout.splitlines()
    assert [line.split("\t")[0] for line in labels] == ["food", "cars"]
    (tmp_path / "wrong.tsv").write_text((tmp_path / "t.tsv").read_text().replace("food", "cars"))
    invoke("report", tmp_path / "model", tmp_path / "wrong.tsv", "-o", tmp_path / "report.html")
    assert "&#34;bread&#34; now" in (tmp_path / "report.html").read_text(encoding="utf-8")
    warnings = invoke("predict", tmp_path / "model", tmp_path / "t.tsv", "--quotes", exit_code=1).stderr
    assert "read the file without quotes" in warnings


def test_quotes_may_be_letters(folder, tmp_path):
    (tmp_path / "t.tsv").write_text('title\tbody\tmain\n"bread" now\t-\tfood\n"engine\t-\tcars\n')
    train = ("train", tmp_path / "t.tsv", *TEXT, "--labels", "main", "-o", tmp_path / "model")
    assert "read the file without quotes" in invoke(*train, exit_code=1).stderr
    invoke(*train, "--no-quotes")
    labels = invoke("predict", tmp_path / "model", tmp_path / "t.tsv", "--no-quotes", "--k", 1).stdout.splitlines()
    assert [line.split("\t")[0] for line in labels] == ["food", "cars"]


def test_a_pipeline_of_python_needs_the_names_of_columns(folder, tmp_path):
    table = rows()
    pipeline = make_pipeline(TfidfVectorizer(), OneVsAllClassifier())
    save(pipeline.fit([row["title"] for row in table], [row["main"] for row in table]), tmp_path / "model")
    message = invoke("predict", tmp_path / "model", folder / "rows.csv", exit_code=1).stderr
    assert "name them with --text" in message
    message = invoke("evaluate", tmp_path / "model", folder / "rows.csv", "--text", "title", exit_code=1).stderr
    assert "name it with --labels" in message
    invoke("evaluate", tmp_path / "model", folder / "rows.csv", "--text", "title", "--labels", "main")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "rows.csv is a table; name its text columns"),
        (("--text", "title"), "--labels is missing"),
        (("--text", "titles", "--labels", "tags"), "column 'titles' is not in"),
        (("--text", "title,", "--labels", "tags"), "--text must be distinct column names"),
        (("--text", "title", "--labels", "tags", "--features", "x"), "--features does not apply to text"),
        (("--text", "title", "--labels", "tags", "--ngrams", "2,1"), "--ngrams must be the minimum"),
        (("--text", "title", "--labels", "tags", "--min-df", "some"), "--min-df must be a number of texts"),
        (("--text", "title", "--labels", "tags", "--min-df", "41"), "rows.csv: "),
        (("--labels", "tags", "--label-sep", "|"), "--label-sep requires --text"),
        (("--text", "title", "--labels", "tags", "--label-sep", ""), "label_sep must be the text between"),
    ],
)
def test_wrong_options_are_explained(folder, tmp_path, arguments, message):
    result = invoke("train", folder / "rows.csv", *arguments, "-o", tmp_path / "model", exit_code=1)
    assert message in result.stderr
    assert not (tmp_path / "model").exists()


def test_rows_of_numbers_and_text_are_not_mixed(folder, tmp_path):
    (tmp_path / "rows.svm").write_text("0 1:1\n1 2:1\n2 3:1\n")
    invoke("train", tmp_path / "rows.svm", "-o", tmp_path / "numbers")
    assert "numeric rows" in invoke("predict", tmp_path / "numbers", folder / "rows.csv", exit_code=1).stderr
    with_columns = ("predict", tmp_path / "numbers", tmp_path / "rows.svm", "--text", "title")
    assert "numeric rows" in invoke(*with_columns, exit_code=1).stderr
    assert (
        "does not end like that of a table"
        in invoke("predict", folder / "model", tmp_path / "rows.svm", exit_code=1).stderr
    )


def test_commands_for_numbers_say_so(folder, tmp_path):
    message = invoke("convert", folder / "rows.csv", tmp_path / "x", exit_code=1).stderr
    assert "requires numeric rows; use train" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("title,tags\n", "the data contain no rows"),
        ("title,tags\na b,\n", "line 2: column 'tags' is empty"),
        ("title,tags\n!,x\n?,y\n", "empty vocabulary"),
    ],
    ids=["no rows", "no label", "no words"],
)
def test_tables_without_content_are_explained(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    result = invoke(
        "train", tmp_path / "t.csv", "--text", "title", "--labels", "tags", "-o", tmp_path / "m", exit_code=1
    )
    assert message in result.stderr


def test_rows_without_labels_are_trained_on_and_evaluated(folder, tmp_path):
    (tmp_path / "t.csv").write_text("title,body,tags\nbread,,food\nengine,,cars\nnothing,,\n")
    options = ("--labels", "tags", "--label-sep", "|", "-o", tmp_path / "model")
    summary = json.loads(invoke("train", tmp_path / "t.csv", *TEXT, *options, "--json").stdout)
    assert (summary["rows"], summary["labels"]) == (3, 2)
    invoke("evaluate", tmp_path / "model", tmp_path / "t.csv")
    (tmp_path / "none.csv").write_text("title,body,tags\nbread,,\n")
    message = invoke("evaluate", tmp_path / "model", tmp_path / "none.csv", exit_code=1).stderr
    assert "column 'tags' contains no labels" in message


@pytest.mark.slow
def test_text_is_trained_in_shards_and_predicted_by_processes(folder, tmp_path):
    options = ("--labels", "tags", "--label-sep", "|", "--shard-size", 2, "-o", tmp_path / "model")
    invoke("train", folder / "rows.csv", *TEXT, *options)
    first, second = ((path / "model" / "model.json").read_bytes() for path in (folder, tmp_path))
    assert first == second
    expected = invoke("predict", folder / "model", folder / "rows.csv").stdout
    assert invoke("predict", folder / "model", folder / "rows.csv", "--processes", 2).stdout == expected
