// Runs axe on a page, but for what it has seen already; see axe.py.
async ([options, approved]) => {
  const FRAME = ".skip, .brand, .menu-button, .side li, .side .who, #shortcuts";
  // Values that differ from row to row: axe minds only if they are empty.
  const VARYING = new Set(["action", "aria-label", "aria-labelledby", "cx", "cy", "d", "data-copy", "datetime", "for", "height",
    "href", "id", "name", "points", "title", "value", "width", "x", "x1", "x2", "y", "y1", "y2"]);
  const STYLES = ["display", "visibility", "position", "opacity", "color", "background-color", "background-image", "font-size",
    "font-weight"];
  // What decides on the contrast of a text: its own look, and whatever an element puts behind or before the texts inside.
  const WRITING = ["color", "font-size", "font-weight", "text-shadow", "-webkit-text-stroke-width"];
  const PAINTING = { "background-color": "rgba(0, 0, 0, 0)", "background-image": "none", opacity: "1", filter: "none",
    "mix-blend-mode": "normal", transform: "none" };
  const REPLACED = new Set(["CANVAS", "IMG", "svg", "VIDEO"]);
  const numbers = new Map();
  const hashes = new Map();
  const own = new Map();
  const whole = new Map();
  const colours = new Map();
  const painted = [];
  const clipping = [];

  function numberOf(key) {
    if (!numbers.has(key)) numbers.set(key, numbers.size);
    return numbers.get(key);
  }

  // Returns the same on every page, unlike `numberOf`; 64 bits, so that no two keys share it.
  function hashOf(key) {
    if (!hashes.has(key)) {
      let [first, second] = [0x811c9dc5, 0x1b873593];
      for (let index = 0; index < key.length; index += 1) {
        const code = key.charCodeAt(index);
        first = Math.imul(first ^ code, 0x01000193);
        second = Math.imul(second ^ code, 0x85ebca6b) + (first >>> 15);
      }
      hashes.set(key, `${(first >>> 0).toString(36)}${(second >>> 0).toString(36)}`);
    }
    return hashes.get(key);
  }

  // Gives elements the same number if nothing but words and places tells them apart: in `own` by themselves, in `whole` down
  // to their last descendants. In `colours` they share a hash if their texts have the same colours, before and behind.
  function look(element, above) {
    const style = getComputedStyle(element);
    const told = [element.tagName, ...STYLES.map((name) => style.getPropertyValue(name))];
    for (const { name, value } of element.attributes) told.push(name, VARYING.has(name) ? value !== "" : value);
    own.set(element, numberOf(told.join("|")));
    const behind = above + paint(element, style);
    if (style.overflow !== "visible" && isLargerInside(element)) clipping.push(element);
    const inside = [own.get(element)];
    let words = "";
    for (const node of element.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) inside.push(look(node, behind));
      if (node.nodeType === Node.TEXT_NODE && node.data.trim()) {
        inside.push("text");
        words += node.data;
      }
    }
    // axe does not judge what is not written in letters.
    const writing = [/[\p{L}\p{N}]/u.test(words), ...WRITING.map((name) => style.getPropertyValue(name))];
    colours.set(element, hashOf(`${writing.join("|")} on ${behind}`));
    whole.set(element, numberOf(inside.join("|")));
    return whole.get(element);
  }

  // Tells what an element paints, if anything.
  function paint(element, style) {
    const layers = Object.entries(PAINTING).map(([name, nothing]) => [style.getPropertyValue(name), nothing]);
    const decorations = ["::before", "::after"].map((part) => getComputedStyle(element, part))
      .filter(({ content }) => content !== "none" && content !== "normal")
      .map((part) => [part.content, part.position, part.backgroundColor, part.backgroundImage, part.width, part.height].join());
    if (!decorations.length && layers.every(([value, nothing]) => value === nothing)) {
      if (REPLACED.has(element.tagName)) painted.push(element);
      return "";
    }
    painted.push(element);
    return `/${layers.map(([value]) => value).join("|")}${decorations}`;
  }

  function isLargerInside({ scrollWidth, clientWidth, scrollHeight, clientHeight }) {
    return scrollWidth > clientWidth || scrollHeight > clientHeight;
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

  // Tells whether nothing is painted behind or before an element but by its ancestors, and no box that scrolls cuts it off.
  function isAlone(element) {
    const box = element.getBoundingClientRect();
    return (
      painted.every((each) => areApart(box, boxes.get(each)) || each.contains(element) || element.contains(each)) &&
      clipping.every((each) => isWithin(box, boxes.get(each)) || each === element || !each.contains(element))
    );
  }

  function areApart(one, other) {
    return one.right <= other.left || other.right <= one.left || one.bottom <= other.top || other.bottom <= one.top;
  }

  function isWithin(inner, outer) {
    return inner.left >= outer.left && inner.right <= outer.right && inner.top >= outer.top && inner.bottom <= outer.bottom;
  }

  // Runs axe, and its rule on contrast only for texts in colours that have not been judged on any page.
  async function run(exclude) {
    const known = new Set(approved.colours);
    const rule = axe._audit.rules.find(({ id }) => id === "color-contrast");
    const { matches } = rule;
    const judged = [];
    rule.matches = (element, ...others) => {
      const colour = colours.get(element);
      if (known.has(colour) && isAlone(element)) return false;
      const isJudged = matches.call(rule, element, ...others);
      if (isJudged && isAlone(element)) {
        known.add(colour);
        judged.push(colour);
      }
      return isJudged;
    };
    try {
      return [await axe.run({ include: document, exclude }, options), judged];
    } finally {
      rule.matches = matches;
    }
  }

  look(document.body, paint(document.documentElement, getComputedStyle(document.documentElement)));
  const boxes = new Map([...painted, ...clipping].map((each) => [each, each.getBoundingClientRect()]));
  const frame = new Map([...document.querySelectorAll(FRAME)].map((part) => [part, describe(part)]));
  const seen = [...frame.keys()].filter((part) => approved.frame.includes(frame.get(part)));
  const [found, judged] = await run([...seen, ...findRepeated()]);
  const tell = (kind) => found[kind].map(({ id, nodes }) => [kind, id, nodes.map(({ html }) => html)]);
  const { scrollWidth, clientWidth } = document.documentElement;
  return {
    told: [...tell("violations"), ...tell("incomplete")],
    overflow: scrollWidth - clientWidth,
    frame: [...new Set(frame.values())].filter((description) => !approved.frame.includes(description)),
    colours: judged,
  };
}
