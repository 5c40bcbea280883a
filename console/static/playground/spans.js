// What stands within a line of Markdown: code, links, emphasis and escaped signs. A text is searched once for what may end a span, so that
// no beginning searches all that follows it.

const BEGINNING = new RegExp([
  /\\(?<escaped>[!-/:-@[-`{-~])/,
  /(?<ticks>`+)/,
  /!?\[(?<label>[^[\]]{0,500})\]\(\s{0,9}<?(?<target>[^\s<>()]{0,2000}(?:\([^\s<>()]{0,500}\)[^\s<>()]{0,500})?)>?(?:\s{1,9}"[^"]{0,500}")?\s{0,9}\)/,
  /(?<!\w)(?<bare>https?:\/\/[^\s<>]{0,2000}[^\s<>.,:;!?'")\]*_`])/,
  /(?<mark>\*\*(?=\S)|\*(?=[^\s*])|(?<!\w)__(?=\S)|(?<!\w)_(?=[^\s_]))/,
].map((each) => each.source).join("|"), "g");
const ENDS = { "**": /(?<=\S)\*\*(?!\*)/g, "*": /(?<=[^\s*])\*(?!\*)/g, __: /(?<=\S)__(?!\w)/g, _: /(?<=[^\s_])_(?!\w)/g };

// Yields the spans of a text, one after another. Their insides are texts of their own.
export function* spansOf(text) {
  const endOf = findEnds(text);
  for (let from = 0, found; (found = beginningIn(text, from));) {
    const { index, 0: whole, groups: { escaped, ticks, label, target, bare, mark } } = found;
    const sign = ticks ?? mark;
    from = index + whole.length;
    if (!sign) {
      yield { index, whole, escaped, label, to: target ?? bare };
      continue;
    }
    const end = endOf(sign, from + 1);
    if (end === undefined) {
      // A run of backticks is one sign, but the second asterisk of two may begin something.
      if (mark) from = index + 1;
      continue;
    }
    const inside = text.slice(from, end);
    from = end + sign.length;
    const span = { index, whole: text.slice(index, from) };
    yield ticks ? { ...span, code: inside } : { ...span, emphasis: inside, tag: sign.length === 2 ? "strong" : "em" };
  }
}

function beginningIn(text, from) {
  BEGINNING.lastIndex = from;
  return BEGINNING.exec(text);
}

// Returns where the span of a sign ends, from a place on; places only grow.
function findEnds(text) {
  const places = new Map();
  const add = (sign, place) => { (places.get(sign) ?? places.set(sign, []).get(sign)).push(place); };
  for (const run of text.matchAll(/`+/g)) add(run[0], run.index);
  for (const [sign, end] of Object.entries(ENDS)) for (const found of text.matchAll(end)) add(sign, found.index);
  for (const each of places.values()) each.reverse();
  return (sign, from) => {
    const left = places.get(sign) ?? [];
    while (left.at(-1) < from) left.pop();
    return left.at(-1);
  };
}
