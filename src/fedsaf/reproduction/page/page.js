"use strict";
const scale = document.querySelector("#scale");
const inScale = (element) => !scale?.value || !element.dataset.scale || element.dataset.scale === scale.value;
const filters = [];
// Every table.data sorts by its headings (buttons, so by keyboard too) and filters by text; a heading with data-choices
// also filters by its values, and a table without visible rows says so. Without this script all rows are simply there.
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const controls = document.createElement("div");
  controls.className = "controls";
  const named = (text, element) => {
    const label = document.createElement("label");
    label.append(text, element);
    controls.append(label);
    return element;
  };
  const search = named("Filter ", document.createElement("input"));
  search.type = "search";
  const choices = heads.map((head, column) => {
    if (!("choices" in head.dataset)) return null;
    const select = named(head.textContent.trim() + " ", document.createElement("select"));
    const values = [...new Set(rows.map((row) => row.cells[column].dataset.value))].sort();
    for (const value of ["", ...values]) select.append(new Option(value || "all", value));
    return select;
  });
  const count = document.createElement("output");
  count.setAttribute("aria-live", "polite");
  controls.append(count);
  table.parentElement.before(controls);

  const texts = new Map(rows.map((row) => [row, row.innerText.toLowerCase()]));  // what is seen, not what is folded away
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = inScale(row) && words.every((word) => texts.get(row).includes(word)) && choices.every(
        (select, column) => !select || !select.value || row.cells[column].dataset.value === select.value);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  for (const element of [search, ...choices]) element?.addEventListener("input", filter);
  filters.push(filter);
  filter();

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const compare = (one, other) => {
        const [a, b] = [value(one), value(other)];
        if (a === "" || b === "") return (a === "") - (b === "");  // empty ones last, either way
        const [x, y] = [Number(a), Number(b)];
        return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
      };
      body.append(...rows.sort(compare));
    });
  });
}
// One choice of scale for the whole page; what belongs to none stays.
scale?.addEventListener("input", () => {
  for (const element of document.querySelectorAll("div[data-scale], figure[data-scale]")) element.hidden = !inScale(element);
  for (const filter of filters) filter();
});
