// Text as the page holds it: characters, the UTF-8 bytes behind them, and the symbols a model knows those by.

const LONGEST = 10000; // bytes that are shown; scripts may score more
const encoder = new TextEncoder();

class Text {
  constructor(string) {
    this.string = string;
    this.characters = []; // {shown, from, to} in UTF-16 units and {first, behind} in bytes
    const bytes = [];
    let from = 0;
    for (const shown of string) {
      const first = bytes.length;
      bytes.push(...encoder.encode(shown));
      this.characters.push({ shown, from, to: from + shown.length, first, behind: bytes.length });
      from += shown.length;
    }
    this.bytes = Uint8Array.from(bytes);
    this.characterOf = new Uint32Array(bytes.length); // byte -> number of its character
    this.characters.forEach(({ first, behind }, n) => this.characterOf.fill(n, first, behind));
  }

  // Bytes before a place in the string.
  bytesBefore(index) {
    let low = 0,
      high = this.characters.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.characters[middle].to <= index) low = middle + 1;
      else high = middle;
    }
    return low === this.characters.length ? this.bytes.length : this.characters[low].first;
  }

  // The place in the string behind so many bytes.
  indexBehind(count) {
    return count === 0 ? 0 : this.characters[this.characterOf[count - 1]].to;
  }

  // How the character of a byte is named: by itself, or by what stands for it.
  nameOf(byte) {
    return nameOfCharacter(this.characters[this.characterOf[byte]].shown);
  }
}

// As much of a string as fits in LONGEST bytes, and how many bytes that leaves out.
function fitting(string) {
  const bytes = encoder.encode(string);
  if (bytes.length <= LONGEST) return [string, 0];
  let end = LONGEST;
  while ((bytes[end] & 0xc0) === 0x80) end--; // not inside a character
  return [new TextDecoder().decode(bytes.subarray(0, end)), bytes.length - end];
}

const VISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\x7f": "^?", "\u00a0": "⍽", "\u200d": "ZWJ", "\ufeff": "BOM" };

function nameOfCharacter(character) {
  const code = character.codePointAt(0);
  return VISIBLE[character] ?? (code < 32 ? `^${String.fromCharCode(64 + code)}` : character);
}

function nameOfByte(byte) {
  return byte < 128 ? nameOfCharacter(String.fromCharCode(byte)) : `0x${byte.toString(16).toUpperCase()}`;
}

// Symbol numbers of bytes. What the model does not know is read as '?' or refused, as CharLM does.
function symbolsOf(bytes, vocabulary, unknown, name = "the text") {
  const numbers = new Int16Array(256).fill(-1);
  vocabulary.forEach((byte, symbol) => (numbers[byte] = symbol));
  const standIn = Math.max(numbers[63], 0),
    symbols = new Array(bytes.length);
  let replaced = 0;
  for (let t = 0; t < bytes.length; t++) {
    symbols[t] = numbers[bytes[t]];
    if (symbols[t] >= 0) continue;
    if (unknown === "refuse") {
      const hex = bytes[t].toString(16).padStart(2, "0");
      throw new Error(
        `${name} has the byte 0x${hex} at offset ${t}, which is not among the model's ${vocabulary.length} symbols`,
      );
    }
    symbols[t] = standIn;
    replaced++;
  }
  return { symbols, replaced };
}

const CLASSES = [
  ["small letters", /^[a-z]$/],
  ["capitals", /^[A-Z]$/],
  ["digits", /^[0-9]$/],
  ["spaces", /^[ \t]$/],
  ["line ends", /^[\n\r]$/],
  ["markup < > [ ] { } | = ' &", /^[<>[\]{}|='&]$/],
  ["other marks", /^[\x21-\x7e]$/],
  ["beyond ASCII", /^[^\x00-\x7e]$/su],
];

function classOf(character) {
  const found = CLASSES.findIndex(([, pattern]) => pattern.test(character));
  return found < 0 ? CLASSES.length - 2 : found;
}

const number = (value, digits = 2) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
const signed = (value, digits = 2) => (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(digits);
const mean = (values) => (values.length ? sum(values) / values.length : NaN);
