// Sorts the table of runs by a column: numbers as numbers, a second click the other way round.
const body = document.querySelector("table.sortable tbody");
const heads = [...document.querySelectorAll("table.sortable th")];
const key = (row, column) => {
  const text = row.cells[column].dataset.key;
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
};
const compared = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
heads.forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * compared(key(a, column), key(b, column)));
    body.append(...rows);
  });
});
