// Search in the browser: every word must occur in a page. A heading that is the query counts most, then titles, headings and text.
(() => {
  const root = new URL(".", document.querySelector("a.home").href);
  const index = new URL(document.currentScript.dataset.index, root);
  const input = document.getElementById("search"), list = document.getElementById("results");
  let pages;

  const count = (text, word) => Math.min(text.split(word).length - 1, 20);

  const isQuery = (words) => (heading) => heading.title.toLowerCase() === words.join(" ");
  const isHeading = (page, words) => page.headings.some(isQuery(words));

  function rank(page, words) {
    let score = isHeading(page, words) ? 1000 : 0;
    for (const word of words) {
      const headings = page.headings.filter((h) => h.title.toLowerCase().includes(word)).length;
      const points = 100 * count(page.title.toLowerCase(), word) + 20 * headings + count(page.lower, word);
      if (points === 0) return 0;
      score += points;
    }
    return score;
  }

  function describe(page, words) {
    const heading = page.headings.find(isQuery(words)) ?? page.headings.find((h) => words.every((word) => h.title.toLowerCase().includes(word)));
    const at = Math.max(page.lower.indexOf(words[0]) - 40, 0);
    return { href: new URL(page.path + (heading ? "#" + heading.id : ""), root), title: page.title, line: heading ? heading.title : page.text.slice(at, at + 140) };
  }

  function show(results) {
    list.replaceChildren(...results.map(({ href, title, line }) => {
      const item = document.createElement("li"), link = document.createElement("a"), small = document.createElement("small");
      link.href = href;
      link.textContent = title;
      small.textContent = line;
      link.append(small);
      item.append(link);
      return item;
    }));
    list.hidden = results.length === 0;
  }

  async function search() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return show([]);
    pages ??= fetch(index).then((r) => r.json()).then((all) => all.map((p) => ({ ...p, lower: p.text.toLowerCase() })));
    const ranked = (await pages).map((page) => ({ page, score: rank(page, words) })).filter((r) => r.score > 0);
    ranked.sort((a, b) => b.score - a.score);
    show(ranked.slice(0, 10).map((r) => describe(r.page, words)));
  }

  input.addEventListener("input", search);
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && document.activeElement !== input) { e.preventDefault(); input.focus(); }
    if (e.key === "Escape") { input.value = ""; show([]); }
    if (e.key === "Enter" && document.activeElement === input) list.querySelector("a")?.click();
  });
})();
