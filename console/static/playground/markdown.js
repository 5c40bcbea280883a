// Markdown as elements: whatever a text says, it becomes text, elements of this list, and links that a reader can judge. Nothing is
// read as HTML, and nothing is loaded. Depths are bounded, and every character is looked at a bounded number of times, so that no text takes long.

import { button, make, put, words } from "./elements.js";
import { spansOf } from "./spans.js";

const FENCE = /^([ \t]*)(`{3,}(?!`)|~{3,}(?!~))[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(\S.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^[ \t]*([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const DEEPEST = 8;
const indentOf = (line) => /^[ \t]*/.exec(line)[0].replaceAll("\t", "    ").length;
const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
const startsBlock = (line) => [FENCE, HEADING, RULE, QUOTE].some((each) => each.test(line)) || /^(\D|1\D)/.test(ITEM.exec(line)?.[1] ?? "1");

function dedent(line, columns) {
  let at = 0;
  for (let left = columns; left > 0 && /[ \t]/.test(line[at]); at += 1) left -= line[at] === "\t" ? 4 : 1;
  return line.slice(at);
}

// Adds an element for each block, and returns the line at which the last of them begins: only that one may still grow. `levels` are those
// of the headings above: the page's own end with the third, and none may be left out.
export function addBlocks(lines, parent, levels, depth = 0) {
  let last = 0;
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim()) {
      last = at;
      at = addBlock(lines, at, parent, levels, depth);
    } else at += 1;
  }
  return last;
}

// Adds one block, and returns the line after it.
function addBlock(lines, at, parent, levels, depth) {
  const line = lines[at];
  let end = at + 1;
  const [, indent, fence] = FENCE.exec(line) ?? [];
  if (fence) {
    const isEnd = (each) => each.trim().length >= fence.length && !each.trim().replaceAll(fence[0], "");
    while (end < lines.length && !isEnd(lines[end])) end += 1;
    addCode(lines.slice(at + 1, end).map((each) => dedent(each, indentOf(indent))).join("\n"), parent);
    return end + 1;
  }
  const [, marks, title] = HEADING.exec(line) ?? [];
  if (marks) {
    while (levels.at(-1) >= marks.length) levels.pop();
    addInline(title, parent.appendChild(make(`h${Math.min(6, 3 + levels.push(marks.length))}`)));
    return end;
  }
  if (RULE.test(line)) {
    parent.append(make("hr"));
    return end;
  }
  if (depth < DEEPEST && QUOTE.test(line)) {
    while (end < lines.length && QUOTE.test(lines[end])) end += 1;
    const inside = lines.slice(at, end).map((each) => each.replace(QUOTE, ""));
    addBlocks(inside, parent.appendChild(make("blockquote")), [...levels], depth + 1);
    return end;
  }
  if (depth < DEEPEST && ITEM.test(line)) return addList(lines, at, parent, levels, depth);
  const heads = cellsOf(line);
  const rules = line.includes("|") && lines[end]?.includes("-") ? cellsOf(lines[end]) : [];
  if (rules.length === heads.length && rules.every((each) => /^:?-+:?$/.test(each))) {
    for (end += 1; lines[end]?.includes("|");) end += 1;
    addTable(heads, lines.slice(at + 2, end).map(cellsOf), parent);
    return end;
  }
  while (lines[end]?.trim() && !startsBlock(lines[end])) end += 1;
  addInline(lines.slice(at, end).join("\n").trim(), parent.appendChild(make("p")));
  return end;
}

function addList(lines, first, parent, levels, depth) {
  const isNumbered = (line) => /^\d/.test(ITEM.exec(line)?.[1] ?? "");
  const isList = isNumbered(lines[first]);
  const indent = indentOf(lines[first]);
  const list = parent.appendChild(make(isList ? "ol" : "ul"));
  if (isList) list.start = parseInt(lines[first], 10);
  let at = first;
  while (at < lines.length && ITEM.test(lines[at]) && !RULE.test(lines[at]) && isNumbered(lines[at]) === isList && indentOf(lines[at]) < indent + 2) {
    const head = ITEM.exec(lines[at])[0];
    const inside = [lines[at].slice(head.length)];
    for (at += 1; at < lines.length; at += 1) {
      const isLazy = lines[at - 1].trim() && !startsBlock(lines[at]) && !ITEM.test(lines[at]);
      if (lines[at].trim() && indentOf(lines[at]) < indent + 2 && !isLazy) break;
      inside.push(dedent(lines[at], indentOf(head) + head.trim().length + 1));
    }
    addBlocks(inside, list.appendChild(make("li")), [...levels], depth + 1);
  }
  return at;
}

function addTable(heads, rows, parent) {
  const table = make("table");
  const row = (cells, tag) => {
    const made = make("tr");
    for (const cell of cells.slice(0, heads.length)) {
      const shown = made.appendChild(make(cell ? tag : "td"));
      if (tag === "th" && cell) shown.scope = "col";
      addInline(cell, shown);
    }
    return made;
  };
  put(table, put(make("thead"), row(heads, "th")), put(make("tbody"), ...rows.map((cells) => row(cells, "td"))));
  parent.append(put(scrolls(make("div", "wide"), words.table), table));
}

// What is wider than the conversation scrolls, with the keyboard too.
function scrolls(element, label) {
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", label);
  return element;
}

export function addCode(text, parent) {
  const copy = button(words.copy, async () => {
    await navigator.clipboard.writeText(text).then(() => { copy.textContent = words.copied; }, () => getSelection().selectAllChildren(pre));
    setTimeout(() => { copy.textContent = words.copy; }, 2500);
  }, "button");
  const pre = put(scrolls(make("pre"), words.code), make("code", "", text));
  parent.append(put(make("div", "copyable"), pre, copy));
}

function addInline(text, parent, isInLink = false, depth = 0) {
  let from = 0;
  for (const { index, whole, escaped, code, label, to, emphasis, tag } of depth < DEEPEST ? spansOf(text) : []) {
    parent.append(text.slice(from, index));
    from = index + whole.length;
    if (escaped) parent.append(escaped);
    else if (code) parent.append(make("code", "", code.replace(/^ (.*) $/s, "$1")));
    else if (emphasis) addInline(emphasis, parent.appendChild(make(tag)), isInLink, depth + 1);
    else if (isInLink || !addLink(label || to, to, parent)) parent.append(whole);
  }
  parent.append(text.slice(from));
}

// Adds a link with where it leads, if it leads out of the console to what a browser or a mail program opens.
export function addLink(label, target, parent) {
  const to = /^(https?:\/\/|mailto:)/i.test(target) && URL.canParse(target) ? new URL(target).href : "";
  if (!to) return false;
  const link = make("a");
  Object.assign(link, { href: to, rel: "noopener noreferrer", target: "_blank" });
  addInline(label, link, true);
  put(parent, link);
  if (link.textContent !== to && `${link.textContent}/` !== to) put(parent, " ", make("span", "to", `(${to})`));
  return true;
}
