"use strict";
// Search and sort of the label table. Without it the page shows all rows, most frequent labels first.
(function () {
  const STEP = 100;
  const table = document.getElementById("label-table");
  const body = table.tBodies[0];
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const more = document.getElementById("more");
  const headers = Array.from(table.tHead.rows[0].cells);
  const compareText = new Intl.Collator(undefined, { numeric: true }).compare;
  let rows = Array.from(body.rows);
  let limit = STEP;
  const names = new Map(rows.map((row) => [row, row.cells[0].textContent.toLowerCase()]));

  function show() {
    const wanted = search.value.trim().toLowerCase();
    let found = 0;
    for (const row of rows) {
      const fits = names.get(row).includes(wanted);
      found += fits ? 1 : 0;
      row.hidden = !fits || found > limit;
    }
    const shown = Math.min(found, limit);
    count.textContent = wanted || shown < found
      ? shown.toLocaleString("en") + " shown of " + found.toLocaleString("en") + " found"
      : found.toLocaleString("en") + " labels";
    more.hidden = shown === found;
    more.textContent = "Show all " + found.toLocaleString("en");
  }

  function keyOf(row, column, kind) {
    const cell = row.cells[column];
    if (kind === "text") return cell.textContent.trim();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  }

  function sort(column) {
    const header = headers[column];
    const kind = header.dataset.kind;
    const before = header.getAttribute("aria-sort");
    const first = kind === "text" ? "ascending" : "descending";
    const order = before === null ? first : before === "ascending" ? "descending" : "ascending";
    headers.forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const keys = new Map(rows.map((row) => [row, keyOf(row, column, kind)]));
    const compare = kind === "text" ? compareText : (a, b) => a - b;
    const empty = (key) => key === null || key === "";
    // Cells without a value come last in both orders.
    rows.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      return sign * compare(x, y);
    });
    body.append(...rows);
    show();
  }

  headers.forEach((header, column) => header.firstElementChild.addEventListener("click", () => sort(column)));
  search.addEventListener("input", () => { limit = STEP; show(); });
  more.addEventListener("click", () => { limit = Infinity; show(); });
  show();
})();
