// Tags and wiki brackets a text opens and closes, counted as report/compare does, and where they stand.

const TAG = /<(\/?)([A-Za-z][\p{L}\p{N}_:]*)[^<>]*?(\/?)>/gu;
const BRACKETS = [
  ["[[", "]]"],
  ["{{", "}}"],
];

// {name: [opened, closed]}; `<minor />` is neither.
function tags(text) {
  const counts = {};
  const count = (name, side, by = 1) => ((counts[name] ??= [0, 0])[side] += by);
  for (const [, end, name, alone] of text.matchAll(TAG)) if (!alone) count(name, end ? 1 : 0);
  for (const [left, right] of BRACKETS) {
    count(`${left} ${right}`, 0, text.split(left).length - 1);
    count(`${left} ${right}`, 1, text.split(right).length - 1);
  }
  return Object.fromEntries(Object.entries(counts).filter(([, [opened, closed]]) => opened || closed));
}

// The pieces of a text: [words, kind], kind "paired", "open" (never closed, or closed without being opened) or "".
function tagPieces(text) {
  const marks = [...text.matchAll(/<(\/?)([A-Za-z][\p{L}\p{N}_:]*)[^<>]*?(\/?)>|\[\[|\]\]|\{\{|\}\}/gu)].map(
    (match) => {
      const bracket = { "[[": ["[[", 0], "]]": ["[[", 1], "{{": ["{{", 0], "}}": ["{{", 1] }[match[0]];
      const [name, closes] = bracket ?? [match[2], match[1] ? 1 : 0];
      return { at: match.index, words: match[0], name, closes, kind: match[3] ? "paired" : "open" };
    },
  );
  const waiting = [];
  for (const mark of marks.filter(({ kind }) => kind === "open")) {
    if (!mark.closes) {
      waiting.push(mark);
      continue;
    }
    const partner = waiting.findLastIndex(({ name }) => name === mark.name);
    if (partner < 0) continue;
    mark.kind = waiting[partner].kind = "paired";
    waiting.splice(partner);
  }
  const pieces = [];
  let at = 0;
  for (const mark of marks) {
    pieces.push([text.slice(at, mark.at), ""], [mark.words, mark.kind]);
    at = mark.at + mark.words.length;
  }
  return [...pieces, [text.slice(at), ""]].filter(([words]) => words);
}
