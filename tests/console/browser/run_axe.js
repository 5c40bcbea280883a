// Runs axe on a page, but for what it has seen already; see axe.py.
async ([options, approved]) => {
  const FRAME = ".skip, .brand, .menu-button, .side li, .side .who, #shortcuts";
  // Values that differ from row to row: axe minds only if they are empty.
  const VARYING = new Set(["action", "aria-label", "aria-labelledby", "cx", "cy", "d", "data-copy", "datetime", "for", "height",
    "href", "id", "name", "points", "title", "value", "width", "x", "x1", "x2", "y", "y1", "y2"]);
  const STYLES = ["display", "visibility", "position", "opacity", "color", "background-color", "background-image", "font-size",
    "font-weight"];
  const numbers = new Map();
  const own = new Map();
  const whole = new Map();

  function numberOf(key) {
    if (!numbers.has(key)) numbers.set(key, numbers.size);
    return numbers.get(key);
  }

  // Gives elements the same number if nothing but words and places tells them apart: in `own` by themselves, in `whole` down
  // to their last descendants.
  function look(element) {
    const style = getComputedStyle(element);
    const told = [element.tagName, ...STYLES.map((name) => style.getPropertyValue(name))];
    for (const { name, value } of element.attributes) told.push(name, VARYING.has(name) ? value !== "" : value);
    own.set(element, numberOf(told.join("|")));
    const inside = [own.get(element)];
    for (const node of element.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) inside.push(look(node));
      if (node.nodeType === Node.TEXT_NODE && node.data.trim()) inside.push("text");
    }
    whole.set(element, numberOf(inside.join("|")));
    return whole.get(element);
  }

  // Finds elements that look like others whose ancestors look the same, but for the first two and the last.
  function findRepeated() {
    const repeated = [];
    let paths = new Map([[document.body, 0]]);
    while (paths.size) {
      const groups = Map.groupBy(paths.keys(), (element) => numberOf(`${paths.get(element)} has ${whole.get(element)}`));
      const spared = new Set([...groups.values()].flatMap((alike) => alike.slice(2, -1)));
      repeated.push(...spared);
      const deeper = new Map();
      for (const [element, path] of paths) {
        if (spared.has(element)) continue;
        for (const child of element.children) deeper.set(child, numberOf(`${path} in ${own.get(element)}`));
      }
      paths = deeper;
    }
    return repeated;
  }

  // Tells all that axe could mind: markup, colours, and what is behind it.
  function describe(part) {
    const inside = [part, ...part.querySelectorAll("*")];
    const behind = [];
    for (let each = part.parentElement; each; each = each.parentElement) behind.push(getComputedStyle(each).backgroundColor);
    const styles = inside.map((each) => STYLES.map((name) => getComputedStyle(each).getPropertyValue(name)));
    return [part.outerHTML, styles, behind].join("|");
  }

  look(document.body);
  const frame = new Map([...document.querySelectorAll(FRAME)].map((part) => [part, describe(part)]));
  const seen = [...frame.keys()].filter((part) => approved.includes(frame.get(part)));
  const found = await axe.run({ include: document, exclude: [...seen, ...findRepeated()] }, options);
  const tell = (kind) => found[kind].map(({ id, nodes }) => [kind, id, nodes.map(({ html }) => html)]);
  const { scrollWidth, clientWidth } = document.documentElement;
  return {
    told: [...tell("violations"), ...tell("incomplete")],
    overflow: scrollWidth - clientWidth,
    approved: [...new Set(frame.values())].filter((description) => !approved.includes(description)),
  };
}
