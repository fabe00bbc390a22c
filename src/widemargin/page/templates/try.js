"use strict";
// Trying a model. Text analysis as TfidfVectorizer does it, scores as LinearScorer does it, and the page around them.
// The data are names that users chose: they are shown as text, never as HTML.

// ---- text analysis: terms, and the pieces of the text that they come from ----

const CASED = 1, IGNORABLE = 2, TOKEN = 4, SPACE = 8;

function makeAnalysis(options) {
  const { analyzer, ngrams: [shortest, longest], least } = options;
  const flags = new Uint8Array(0x110000);
  for (const [name, flag] of [["cased", CASED], ["ignorable", IGNORABLE], ["token", TOKEN], ["space", SPACE]]) {
    const ranges = options[name] || [];
    for (let i = 0, at = 0; i < ranges.length; i += 2) {
      at += ranges[i];
      for (const end = at + ranges[i + 1]; at < end; at++) flags[at] |= flag;
    }
  }
  const has = (character, flag) => (flags[character.codePointAt(0)] & flag) !== 0;
  const asMap = (changes) => new Map(Object.entries(changes));
  const lower = options.lower && asMap(options.lower);
  const accents = options.accents && asMap(options.accents.changes);
  const stopWords = options.stop_words && new Set(options.stop_words);

  // Σ is final after a cased character and before none; characters that case ignores do not count.
  function isFinal(characters, i) {
    let j = i - 1;
    while (j >= 0 && has(characters[j], IGNORABLE)) j--;
    if (j < 0 || !has(characters[j], CASED)) return false;
    for (j = i + 1; j < characters.length && has(characters[j], IGNORABLE);) j++;
    return j === characters.length || !has(characters[j], CASED);
  }

  function lowered(characters, i) {
    const character = characters[i];
    if (character === "Σ") return isFinal(characters, i) ? "ς" : "σ";
    const changed = lower.get(character);
    return changed === undefined ? character : changed;
  }

  function withoutAccents(character) {
    const code = character.codePointAt(0);
    if (code < 128) return character;
    if (options.accents.hangul && code >= 0xac00 && code <= 0xd7a3) {
      const place = code - 0xac00, tail = place % 28;
      const jamo = [0x1100 + Math.floor(place / 588), 0x1161 + Math.floor((place % 588) / 28)];
      return String.fromCodePoint(...jamo, ...(tail ? [0x11a7 + tail] : []));
    }
    const changed = accents.get(character);
    if (changed !== undefined) return changed;
    return options.accents.rest ? character : "";
  }

  // The characters of the text after lower-casing and without accents, and where each was in the text.
  function prepare(text) {
    const characters = Array.from(text);
    const found = { characters: [], starts: [], ends: [] };
    let start = 0;
    for (let i = 0; i < characters.length; i++) {
      const end = start + characters[i].length;
      const small = lower ? lowered(characters, i) : characters[i];
      for (const part of small.length === 1 ? small : Array.from(small)) {
        const plain = accents ? withoutAccents(part) : part;
        for (const character of plain.length === 1 ? plain : Array.from(plain)) {
          found.characters.push(character);
          found.starts.push(start);
          found.ends.push(end);
        }
      }
      start = end;
    }
    return found;
  }

  // Longest runs of at least `least` characters that have, or do not have, a flag.
  function runs(prepared, flag, wanted, least) {
    const { characters, starts, ends } = prepared, found = [];
    for (let i = 0; i < characters.length;) {
      let end = i;
      while (end < characters.length && has(characters[end], flag) === wanted) end++;
      if (end - i >= least) {
        found.push({ first: i, last: end, start: starts[i], end: ends[end - 1] });
      }
      i = end === i ? i + 1 : end;
    }
    return found;
  }

  function wordTerms(prepared, see) {
    let units = runs(prepared, TOKEN, true, least);
    for (const unit of units) unit.text = prepared.characters.slice(unit.first, unit.last).join("");
    if (stopWords) units = units.filter((unit) => !stopWords.has(unit.text));
    for (let n = shortest; n <= Math.min(longest, units.length); n++) {
      for (let i = 0; i + n <= units.length; i++) {
        see(n === 1 ? units[i].text : units.slice(i, i + n).map((unit) => unit.text).join(" "), i, i + n);
      }
    }
    return units;
  }

  // Two or more white spaces are one blank; a single one stays as it is.
  function joinSpaces(prepared) {
    const { characters, starts, ends } = prepared;
    const found = { characters: [], starts: [], ends: [] };
    for (let i = 0; i < characters.length;) {
      let end = i + 1;
      if (has(characters[i], SPACE)) while (end < characters.length && has(characters[end], SPACE)) end++;
      found.characters.push(end - i > 1 ? " " : characters[i]);
      found.starts.push(starts[i]);
      found.ends.push(ends[end - 1]);
      i = end;
    }
    return found;
  }

  function characterTerms(given, see) {
    const prepared = joinSpaces(given), { characters } = prepared;
    const units = runs(prepared, SPACE, false, 1);
    if (analyzer === "char_wb") {
      units.forEach((unit, place) => {
        const word = [" ", ...characters.slice(unit.first, unit.last), " "];
        for (let n = shortest; n <= longest; n++) {
          let offset = 0;
          see(word.slice(0, n).join(""), place, place + 1);
          while (offset + n < word.length) see(word.slice(++offset, offset + n).join(""), place, place + 1);
          if (offset === 0) break; // a word shorter than n counts once
        }
      });
      return units;
    }
    // The first unit at or after each character, and the number of units that start at or before it.
    const after = new Int32Array(characters.length), before = new Int32Array(characters.length);
    for (let i = 0, unit = 0; i < characters.length; i++) {
      if (unit < units.length && i >= units[unit].last) unit++;
      after[i] = unit;
      before[i] = unit < units.length && i >= units[unit].first ? unit + 1 : unit;
    }
    for (let n = shortest; n <= Math.min(longest, characters.length); n++) {
      for (let i = 0; i + n <= characters.length; i++) {
        see(characters.slice(i, i + n).join(""), after[i], before[i + n - 1]);
      }
    }
    return units;
  }

  // The known terms: how often each occurs, and in which units (pieces of the text).
  function analyse(text, known) {
    const found = new Map();
    const see = (term, first, end) => {
      if (!known.has(term)) return;
      let places = found.get(term);
      if (places === undefined) found.set(term, (places = []));
      places.push([first, end]);
    };
    const units = (analyzer === "word" ? wordTerms : characterTerms)(prepare(text), see);
    return { terms: found, units };
  }

  const lowerText = (text) => {
    const characters = Array.from(text);
    return lower ? characters.map((_, i) => lowered(characters, i)).join("") : text;
  };
  const prepared = (text) => prepare(text).characters.join("");
  return { analyse, lowerText, prepared, isToken: (character) => has(character, TOKEN) };
}

// ---- the model ----

const TYPES = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
};

function decodeBase64(text) {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array((text.length / 4) * 3 - padding);
  const step = 1 << 20; // characters at a time, so that a large model is not in memory once more
  for (let first = 0, at = 0; first < text.length; first += step) {
    const part = atob(text.slice(first, first + step));
    for (let i = 0; i < part.length; i++) bytes[at++] = part.charCodeAt(i);
  }
  return bytes.buffer;
}

function makeModel(about, analysis, buffer) {
  const arrays = {};
  for (const [name, [type, offset, length]] of Object.entries(about.arrays)) {
    arrays[name] = new TYPES[type](buffer, offset, length);
  }
  const { form, outputs: nOutputs, factored } = about.weights;
  const { kind, classes, terms, tree } = about;
  const vocabulary = new Map(terms.map((term, place) => [term, place]));

  // Calls back with the outputs that have a weight for a feature, ascending, and the weights.
  const eachWeight = {
    lists(feature, see) {
      const { values, places, starts } = arrays;
      for (let i = starts[feature]; i < starts[feature + 1]; i++) see(places[i], values[i]);
    },
    dense(feature, see) {
      const { values } = arrays, first = feature * nOutputs;
      for (let output = 0; output < nOutputs; output++) see(output, values[first + output]);
    },
    // Blocks of labels; a list has a byte per entry, the distance from the label before, or two, the label.
    compressed(feature, see) {
      const { values, places, starts, bases, scale } = arrays, { per_block: perBlock } = about.weights;
      const width = 2 * (starts.length / bases.length); // of `starts` in a block: two numbers per list
      for (let block = 0; block < bases.length / 2; block++) {
        const list = block * width + 2 * feature, first = block * perBlock;
        const entry = bases[2 * block] + starts[list], size = starts[list + 2] - starts[list];
        const byte = bases[2 * block + 1] + starts[list + 1], wide = starts[list + 3] - starts[list + 1] > size;
        for (let i = 0, label = first; i < size; i++) {
          label = wide ? first + places[byte + 2 * i] + 256 * places[byte + 2 * i + 1] : label + places[byte + i];
          const value = values[entry + i];
          if (value !== 0) see(label, scale[label] * value); // zeros bridge long distances
        }
      }
    },
  }[form];

  // A text as TfidfVectorizer makes a row of it, in the same type; then scaled to length one if the model does so.
  function rowOf(found) {
    const { dtype, binary, norm, unit } = about.vector;
    const single = dtype === "float32";
    const counts = [...found.terms].map(([term, places]) => [vocabulary.get(term), places.length]);
    counts.sort((a, b) => a[0] - b[0]);
    const features = counts.map(([feature]) => feature);
    const values = new TYPES[dtype](counts.map(([, count]) => (binary ? 1 : count)));
    for (let i = 0; i < values.length; i++) {
      if (arrays.logs) {
        const count = values[i];
        values[i] = count <= arrays.logs.length ? arrays.logs[count - 1] : Math.log(count);
        values[i] += 1;
      }
      if (arrays.idf) values[i] *= arrays.idf[features[i]];
    }
    if (norm) {
      let sum = 0;
      for (const x of values) sum += norm === "l1" ? Math.abs(x) : single ? Math.fround(x * x) : x * x;
      const length = norm === "l1" ? sum : Math.sqrt(sum);
      if (sum !== 0) for (let i = 0; i < values.length; i++) values[i] /= length;
    }
    if (unit) {
      let largest = 0, sum = 0;
      for (const x of values) largest = Math.max(largest, Math.abs(x));
      const scaled = Array.from(values, (x) => x / (largest || 1));
      for (const x of scaled) sum += x * x;
      const length = Math.sqrt(sum) || 1;
      for (let i = 0; i < values.length; i++) values[i] = scaled[i] / length;
    }
    return { features, values };
  }

  // All scores: products in float64, added in the order of the features, from the intercept on.
  function scoresOf({ features, values }) {
    const scores = factored ? new Float64Array(nOutputs) : Float64Array.from(arrays.intercept);
    features.forEach((feature, i) => {
      const x = values[i];
      eachWeight(feature, (output, weight) => { scores[output] += x * weight; });
    });
    if (!factored) return scores;
    return Float64Array.from(arrays.intercept, (intercept, output) => {
      let sum = 0;
      for (const [above, factor] of pathFactors(output)) sum += factor * scores[above];
      return sum + intercept;
    });
  }

  // Factored weights of a node: those of the rows on its path, with factors.
  function pathFactors(output) {
    const { path_starts: starts, path_rows: rows, path_factors: factors } = arrays, found = [];
    for (let i = starts[output]; i < starts[output + 1]; i++) found.push([rows[i], factors[i]]);
    return found;
  }

  // Scores of some outputs as sums: the products of weights and values at the features of a row.
  function formsOf({ features, values }, outputs) {
    const parts = new Map();
    const partsOf = new Map(outputs.map((o) => [o, factored ? pathFactors(o) : [[o, 1]]]));
    for (const list of partsOf.values()) for (const [row] of list) parts.set(row, new Float64Array(features.length));
    features.forEach((feature, i) => eachWeight(feature, (output, weight) => {
      const part = parts.get(output);
      if (part !== undefined) part[i] = weight;
    }));
    const forms = new Map();
    for (const [output, list] of partsOf) {
      const products = new Float64Array(features.length);
      for (const [row, factor] of list) parts.get(row).forEach((weight, i) => { products[i] += factor * weight; });
      products.forEach((weight, i) => { products[i] = weight * values[i]; });
      forms.set(output, { products, intercept: arrays.intercept[output] });
    }
    return forms;
  }

  const combine = (a, b, sign) => ({
    products: a.products.map((x, i) => x + sign * b.products[i]), intercept: a.intercept + sign * b.intercept,
  });

  // The terms of a sum, largest first.
  function sumOf(row, { products, intercept }) {
    const order = Array.from(products.keys()).filter((i) => products[i] !== 0);
    order.sort((a, b) => Math.abs(products[b]) - Math.abs(products[a]) || a - b);
    const listed = order.slice(0, about.most_terms).map((i) => [terms[row.features[i]], products[i]]);
    let others = 0;
    for (const i of order.slice(about.most_terms)) others += products[i];
    return { terms: listed, others, intercept };
  }

  // Places of the k largest values, best first; the first of equals comes first.
  function largest(values, k) {
    const best = [];
    for (let i = 0; i < values.length; i++) {
      if (best.length === k && !(values[i] > values[best[k - 1]])) continue;
      let place = best.length;
      while (place > 0 && values[i] > values[best[place - 1]]) place--;
      best.splice(place, 0, i);
      if (best.length > k) best.pop();
    }
    return best;
  }

  // ---- probabilities ----

  const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
  const logSigmoid = (x) => (x >= 0 ? -Math.log1p(Math.exp(-x)) : x - Math.log1p(Math.exp(x)));
  const { calibration_slope: slope, calibration_offset: offset, calibration_temperature: temperature } = arrays;
  const { calibration_knots: knots, calibration_values: heights } = arrays;

  function curve(x) {
    if (x <= knots[0]) return heights[0];
    const last = knots.length - 1;
    if (x >= knots[last]) return heights[last];
    let low = 0, high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (knots[middle] <= x) low = middle; else high = middle;
    }
    return heights[low] + ((heights[high] - heights[low]) / (knots[high] - knots[low])) * (x - knots[low]);
  }

  function probabilityOf(label, score) {
    const logit = slope[label] * score + offset[label];
    return knots ? curve(logit) : sigmoid(logit);
  }

  // Probabilities of classes that exclude each other, from their scores.
  function shares(scores, group) {
    const exponents = Array.from(scores, (s) => logSigmoid(slope[0] * s + offset[0]) * temperature[group]);
    const top = exponents.reduce((a, b) => Math.max(a, b), -Infinity);
    const powers = exponents.map((x) => Math.exp(x - top));
    const sum = powers.reduce((a, b) => a + b, 0);
    const found = powers.map((x) => x / sum);
    if (!knots) return found;
    const curved = found.map((p) => curve(Math.min(36, Math.max(-36, Math.log(p) - Math.log1p(-p)))));
    const whole = curved.reduce((a, b) => a + b, 0);
    return whole > 0 ? curved.map((p) => p / whole) : found;
  }

  // ---- lists of labels ----

  function flatAnswer(row, k) {
    const raw = scoresOf(row), binary = kind === "binary";
    const scores = binary ? [-raw[0], raw[0]] : raw;
    // Of two classes with the score 0, the first is predicted.
    const best = largest(scores, k);
    let probabilities = null;
    if (about.calibration && kind === "multiclass") probabilities = shares(scores, 0);
    if (about.calibration && binary) {
      const second = probabilityOf(0, raw[0]);
      probabilities = [1 - second, second];
    }
    const chosen = about.decision ? chooser(scores) : () => null;
    const forms = formsOf(row, binary ? [0] : best);
    return best.map((label, rank) => {
      let form = forms.get(binary ? 0 : label);
      if (binary && label === 0) form = combine({ products: form.products.map(() => 0), intercept: 0 }, form, -1);
      let probability = probabilities ? probabilities[label] : null;
      if (about.calibration && kind === "multilabel") probability = probabilityOf(label, scores[label]);
      const found = { label: classes[label], score: scores[label], probability, predicted: chosen(label, rank) };
      return { ...found, note: "", ...sumOf(row, form), path: [] };
    });
  }

  // Whether the model predicts a label, by its number and its place in the list.
  function chooser(scores) {
    const { by, least, most } = about.decision;
    const above = (l) => (by === "score" ? scores[l] > arrays.limits[l] : probabilityOf(l, scores[l]) > 0.5);
    let count = 0;
    if (most !== null) count = largest(scores, most).filter(above).length;
    else for (let label = 0; label < scores.length; label++) count += above(label) ? 1 : 0;
    return (label, rank) => (above(label) && (most === null || rank < most)) || (count < least && rank < least);
  }

  function treeAnswer(row, k) {
    const { tree_rows: rows, tree_parent: parent, tree_first_child: firstChild, tree_place: place } = arrays;
    const { tree_end_class: endClass, tree_group_start: groupStart } = arrays;
    const all = scoresOf(row), nLive = rows.length;
    const scores = Float64Array.from(rows, (r) => all[r]);
    const groupEnd = (group) => (group + 1 < groupStart.length ? groupStart[group + 1] : nLive);
    const greedy = tree.decision === "greedy", values = new Float64Array(nLive);
    for (let group = 0; group < groupStart.length; group++) {
      const first = groupStart[group], end = groupEnd(group);
      let best = -Infinity, second = -Infinity;
      for (let i = first; i < end; i++) {
        if (scores[i] > best) { second = best; best = scores[i]; } else if (scores[i] > second) second = scores[i];
      }
      for (let i = first; i < end; i++) {
        const above = parent[i];
        if (!greedy) values[i] = scores[i] + (above >= 0 ? values[above] : 0);
        else {
          const margin = scores[i] - (scores[i] >= best ? second : best);
          values[i] = above >= 0 ? Math.min(margin, values[above]) : margin;
        }
      }
    }
    for (let i = 0; i < nLive; i++) if (!Number.isFinite(values[i])) values[i] = 0; // no node of the path has a sibling
    const kept = tree.decision === "beam" ? keptByBeam(values, Math.max(tree.beam_width, k)) : null;
    const endValues = new Float64Array(classes.length).fill(-Infinity);
    for (let i = 0; i < nLive; i++) if (endClass[i] >= 0 && (!kept || kept[i])) endValues[endClass[i]] = values[i];
    const best = largest(endValues, k).filter((label) => endValues[label] > -Infinity);
    const probabilities = about.calibration ? pathProbabilities(scores) : null;

    const siblingOf = (node) => {
      const first = firstChild[parent[node] + 1], end = firstChild[parent[node] + 2];
      let found = null;
      for (let i = first; i < end; i++) if (i !== node && (found === null || scores[i] > scores[found])) found = i;
      return found;
    };
    const paths = best.map((label) => {
      const found = [];
      for (let node = place[label]; node >= 0; node = parent[node]) found.unshift([node, siblingOf(node)]);
      return found;
    });
    const needed = new Set(paths.flat(2).filter((node) => node !== null).map((node) => rows[node]));
    const forms = formsOf(row, [...needed]);
    const formOf = (node) => forms.get(rows[node]);
    const nameOf = (node) => tree.nodes[rows[node] + 1];
    const nothing = { products: new Float64Array(row.features.length), intercept: 0 };
    return best.map((label, rank) => {
      const path = paths[rank];
      let form = nothing, note = "";
      if (greedy) {
        note = "there is no other path";
        let weakest = Infinity;
        for (const [node, sibling] of path) {
          if (sibling === null || scores[node] - scores[sibling] >= weakest) continue;
          weakest = scores[node] - scores[sibling];
          form = combine(formOf(node), formOf(sibling), -1);
          note = `lead of ${nameOf(node)} over ${nameOf(sibling)}, the smallest on the path`;
        }
      } else {
        for (const [node] of path) form = combine(form, formOf(node), 1);
        if (tree.follows_paths) note = "sum of the scores along the path";
      }
      const steps = tree.follows_paths ? path.map(([node, sibling]) => {
        const step = { label: nameOf(node), score: scores[node] };
        if (sibling === null) return step;
        const lead = sumOf(row, combine(formOf(node), formOf(sibling), -1));
        return { ...step, runner_up: nameOf(sibling), margin: scores[node] - scores[sibling], ...lead };
      }) : namesOf(label);
      const probability = probabilities ? (place[label] < 0 ? 1 : probabilities[place[label]]) : null;
      const found = { label: classes[label], score: endValues[label], probability, predicted: null, note };
      return { ...found, ...sumOf(row, form), path: steps };
    });

    function keptByBeam(sums, width) {
      const found = new Uint8Array(nLive);
      for (let first = 0, end = firstChild[1]; end > first; [first, end] = [end, firstChild[end + 1]]) {
        const reached = [];
        for (let i = first; i < end; i++) if (parent[i] < 0 || found[parent[i]]) reached.push(i);
        for (const i of largest(reached.map((node) => sums[node]), width)) found[reached[i]] = 1;
      }
      return found;
    }

    function pathProbabilities() {
      const found = new Float64Array(nLive);
      for (let group = 0; group < groupStart.length; group++) {
        const first = groupStart[group], end = groupEnd(group), above = parent[first];
        shares(scores.subarray(first, end), above >= 0 ? rows[above] + 1 : 0).forEach((share, i) => {
          found[first + i] = share * (above >= 0 ? found[above] : 1);
        });
      }
      return found;
    }
  }

  function namesOf(label) {
    const found = [];
    for (let node = arrays.class_node[label]; node > 0; node = arrays.node_parent[node]) {
      found.unshift({ label: tree.nodes[node] });
    }
    return found;
  }

  function answer(text, k) {
    const row = rowOf(analysis.analyse(text, vocabulary));
    k = Math.min(k, classes.length);
    return { known: row.features.length, note: "", labels: (tree ? treeAnswer : flatAnswer)(row, k) };
  }
  return { answer };
}

// ---- the page ----

(function () {
  const MOST_SHOWN = 20000; // characters of the text that are shown with highlights
  const LISTED = 10; // terms in the table
  const about = JSON.parse(document.getElementById("about").textContent);
  const service = about.source === "service";
  const byId = (id) => document.getElementById(id);
  const [field, count, token, status, labels, why] = ["text", "k", "token", "status", "labels", "why"].map(byId);
  let analysis = null, described = false, local = null, latest = 0, timer = null, busy = 0, shown = null;

  function element(name, className, text) {
    const found = document.createElement(name);
    if (className) found.className = className;
    if (text !== undefined) found.textContent = text;
    return found;
  }

  const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(3);
  const percent = (p) => (p > 0 && p < 0.001 ? "< 0.1 %" : (100 * p).toFixed(1) + " %");
  const value = (found) => (found.probability === null ? signed(found.score) : percent(found.probability));

  function describe(facts) {
    byId("title").textContent = document.title = facts.title;
    byId("facts").textContent = facts.facts.join(" · ");
    field.disabled = !facts.takes_text;
    if (!facts.takes_text) {
      say("This model takes rows of numbers, not text. Send them to POST /predict; /docs describes it.");
    }
    analysis = facts.analysis && makeAnalysis(facts.analysis);
    described = true;
  }

  function say(text, wrong = false) {
    status.textContent = text;
    status.classList.toggle("wrong", wrong);
  }

  async function request(method, body) {
    busy++;
    try { return await send(method, body); } finally { busy--; }
  }

  async function send(method, body) {
    const headers = { "Content-Type": "application/json" };
    if (token.value) headers.Authorization = "Bearer " + token.value;
    const response = await fetch("try", { method, headers, body: body && JSON.stringify(body) }).catch(() => {
      throw new Error("The server does not answer.");
    });
    if (response.status === 401) {
      byId("token-row").hidden = false;
      throw new Error(token.value ? "The token is wrong." : "This server requires a token. Type it below the text.");
    }
    const found = await response.json().catch(() => ({ detail: response.statusText }));
    if (!response.ok) {
      const { detail } = found;
      throw new Error(typeof detail === "string" ? detail : "The server refused this: " + JSON.stringify(detail));
    }
    return found;
  }

  async function answer(text, k) {
    if (!service) return local.answer(text, k);
    if (!described) describe(await request("GET"));
    return request("POST", { text, k });
  }

  async function update() {
    const text = field.value, mine = ++latest;
    timer = null;
    if (!text.trim()) {
      shown = null;
      labels.replaceChildren();
      byId("result").hidden = why.hidden = true;
      if (!field.disabled) say("");
      return;
    }
    try {
      const found = await answer(text, Number(count.value));
      if (mine === latest) show(text, found);
    } catch (error) {
      if (mine === latest) say(error.message, true);
    }
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(update, service ? 400 : 120);
  }

  function show(text, found) {
    const before = shown && shown.found.labels[shown.place].label;
    const place = Math.max(0, found.labels.findIndex((one) => one.label === before));
    shown = { text, found, place };
    byId("result").hidden = false;
    const numbers = found.labels.map((one) => (one.probability === null ? one.score : one.probability));
    const certain = found.labels.some((one) => one.probability !== null); // bars of probabilities end at 1
    const low = Math.min(0, ...numbers), high = Math.max(certain ? 1 : 0, ...numbers), range = high - low || 1;
    labels.replaceChildren(...found.labels.map((one, i) => {
      const row = element("label", "row"), choice = element("input");
      Object.assign(choice, { type: "radio", name: "label", checked: i === place });
      choice.addEventListener("change", () => { shown.place = i; explain(); });
      const bar = element("span", numbers[i] < 0 ? "bar below" : "bar");
      bar.style.setProperty("--from", (Math.min(numbers[i], 0) - low) / range);
      bar.style.setProperty("--size", Math.abs(numbers[i]) / range);
      const name = element("span", "name", one.label);
      if (one.predicted) {
        const tick = element("span", "tick", " ✓");
        tick.title = "The model predicts this label.";
        tick.append(element("span", "hidden", "predicted"));
        name.append(tick);
      }
      row.append(choice, name, element("span", "number", value(one)), bar);
      return row;
    }));
    byId("legend").hidden = !found.labels.some((one) => one.predicted);
    const top = found.labels[0];
    const unknown = found.known === 0 ? " No word of this text is known to the model." : "";
    say(top === undefined ? "No label." : `Top label: ${top.label}, ${value(top)}.${unknown}`);
    explain();
  }

  function explain(step = null) {
    const one = shown.found.labels[shown.place];
    why.hidden = one === undefined;
    if (one === undefined) return;
    byId("why-label").textContent = one.label;
    showPath(one, step);
    const sum = step === null ? one : one.path[step];
    const explained = sum.terms !== undefined;
    let about = shown.found.note;
    if (step !== null) about = `${sum.label}: ${signed(sum.margin)} against ${sum.runner_up}`;
    else if (explained) about = `Score ${signed(one.score)}` + (one.note ? `: ${one.note}` : "");
    byId("note").textContent = about;
    byId("why-body").hidden = !explained;
    if (!explained) return;
    highlight(sum.terms);
    table(sum);
  }

  function showPath(one, step) {
    const path = byId("path");
    path.hidden = one.path === undefined || one.path.length === 0;
    path.replaceChildren(...(one.path || []).map((node, i) => {
      const item = element("li");
      if (node.terms === undefined) {
        item.append(element("span", "node", node.label));
        return item;
      }
      const button = element("button", "node");
      button.type = "button";
      button.setAttribute("aria-pressed", String(step === i));
      button.append(element("span", "", node.label), element("small", "", signed(node.margin)));
      button.title = `${signed(node.margin)} against ${node.runner_up}`;
      button.addEventListener("click", () => {
        explain(step === i ? null : i);
        byId("path").children[i].firstChild.focus();
      });
      item.append(button);
      return item;
    }));
  }

  // The text with the units that decided: each term gives an equal share to its places and their units.
  function highlight(terms) {
    const box = byId("marked"), { text } = shown;
    byId("marked-part").hidden = analysis === null;
    if (analysis === null) return;
    const found = analysis.analyse(text, new Set(terms.map(([term]) => term)));
    const weights = new Float64Array(found.units.length);
    for (const [term, part] of terms) {
      const places = (found.terms.get(term) || []).filter(([first, end]) => end > first);
      for (const [first, end] of places) {
        for (let unit = first; unit < end; unit++) weights[unit] += part / places.length / (end - first);
      }
    }
    const top = weights.reduce((a, b) => Math.max(a, Math.abs(b)), 0) || 1;
    const parts = [];
    let at = 0;
    found.units.forEach(({ start, end }, unit) => {
      const share = weights[unit] / top;
      if (Math.abs(share) < 0.05 || start < at || end > MOST_SHOWN) return;
      const mark = element("mark", share > 0 ? "for" : "against", text.slice(start, end));
      mark.style.setProperty("--v", Math.abs(share).toFixed(3));
      mark.title = signed(weights[unit]);
      parts.push(text.slice(at, start), mark);
      at = end;
    });
    parts.push(text.slice(at, Math.max(at, MOST_SHOWN)));
    box.replaceChildren(...parts);
    byId("cut").hidden = text.length <= MOST_SHOWN;
  }

  function table(sum) {
    const top = sum.terms.slice(0, LISTED), rest = sum.terms.slice(LISTED);
    const others = rest.reduce((total, [, part]) => total + part, sum.others);
    const largest = top.reduce((a, [, part]) => Math.max(a, Math.abs(part)), 0) || 1;
    const rows = top.map(([term, part]) => {
      const row = element("tr"), cell = element("td", "both"), bar = element("span", part > 0 ? "for" : "against");
      const name = element("th", "", term.replace(/ /g, "\u00a0"));
      name.scope = "row";
      cell.setAttribute("aria-hidden", "true");
      bar.style.setProperty("--v", (Math.abs(part) / largest).toFixed(3));
      cell.append(bar);
      row.append(name, element("td", "", signed(part)), cell);
      return row;
    });
    for (const [name, part] of [["(other terms)", others], ["(intercept)", sum.intercept]]) {
      if (!part) continue;
      const row = element("tr", "soft"), header = element("th", "", name);
      header.scope = "row";
      row.append(header, element("td", "", signed(part)), element("td"));
      rows.push(row);
    }
    byId("terms").replaceChildren(...rows);
  }

  byId("origin").textContent = service
    ? "The text is sent to this server and to no other."
    : "The model is in this page: the text stays on this device.";
  byId("version").textContent = `widemargin ${about.version}`;
  if (service) {
    request("GET").then(describe).catch((error) => say(error.message, true));
    token.addEventListener("change", () => {
      const start = (facts) => { describe(facts); say(""); update(); };
      request("GET").then(start).catch((error) => say(error.message, true));
    });
  } else {
    describe(about);
    local = makeModel(about.model, analysis, decodeBase64(byId("blob").textContent.trim()));
  }
  field.addEventListener("input", later);
  count.addEventListener("change", update);
  byId("form").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => { field.value = ""; field.focus(); update(); });
  window.widemargin = { answer, analysis: () => analysis, idle: () => timer === null && busy === 0 }; // for tests
  update(); // a browser may bring back a text that was typed before
})();
