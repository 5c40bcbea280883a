// Reads a page as people do; see reading.py.
() => {
  const words = (text) => text.replace(/\s+/g, " ").trim();

  function texts(root, isRead = () => true) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) if (isRead(walker.currentNode.parentElement)) found.push(words(walker.currentNode.data));
    return found.filter((text) => /[\p{L}\p{N}]/u.test(text));
  }

  // What a row does not show, but for what stands under its name instead: each value in a place of its own.
  function hiddenIn(row) {
    let beside = [...row.querySelectorAll(".narrow-only")].map((place) => words(place.textContent)).join("|");
    const hidden = [...row.querySelectorAll("td, .wide-only")].filter((cell) => !cell.checkVisibility());
    // The longest first: a part of one is no place of another.
    const values = hidden.flatMap((cell) => texts(cell)).sort((one, other) => other.length - one.length);
    return values.filter((value) => {
      const before = beside;
      const escaped = value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      beside = beside.replace(new RegExp(`(?<![\\p{L}\\p{N}])${escaped}(?![\\p{L}\\p{N}])`, "u"), "");
      return beside === before;
    });
  }

  const rows = [...document.querySelectorAll("main :is(tbody, tfoot) tr")].filter((row) => row.checkVisibility());
  // Without what is said in another language than the page's, code, and what is typed.
  const foreign = ":not(html)[lang]:not([lang^=fr]), code, pre, script, .mono, .copyable, textarea";
  return { hidden: rows.flatMap(hiddenIn), texts: texts(document.body, (element) => !element.closest(foreign)) };
}
