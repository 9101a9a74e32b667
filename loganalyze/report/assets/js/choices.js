// In the page's head, so that the first paint has the reader's language and theme. Both stand on the
// root element: with scripts no rule needs :has(), for which a browser looks at the whole page again
// whenever a chart adds an element.
const page = document.documentElement;
const CHOICES = { lang: ["en", "zh"], theme: ["auto", "light", "dark"] };

page.classList.add("js");
for (const name in CHOICES) {
  try {
    const value = localStorage.getItem(`loganalyze.${name}`);
    if (CHOICES[name].includes(value)) page.dataset[name] = value;
  } catch { /* storage may be forbidden for files: the page's own choice stands */ }
}

document.addEventListener("change", ({ target: { name, value } }) => {
  if (!(name in CHOICES)) return;
  page.dataset[name] = value;
  try { localStorage.setItem(`loganalyze.${name}`, value); } catch { /* then it lasts as long as the page */ }
});

document.addEventListener("DOMContentLoaded", () => {
  for (const name in CHOICES) document.getElementById(`${name}-${page.dataset[name]}`).checked = true;
});
