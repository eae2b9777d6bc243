// Tapes: values over the text, one column per byte, aligned with its characters. The gates are L x L of them.

const COLUMN = 12,
  LABEL = 44;

// The part of the text a tape shows: as many bytes as fit, with the cursor inside.
function tapeWindow(app, width) {
  const fits = Math.max(Math.floor((width - LABEL - 4) / COLUMN), 8),
    length = app.text.bytes.length;
  const first = Math.max(Math.min(app.cursor - Math.ceil(fits * 0.6), length - fits), 0);
  return { first, behind: Math.min(first + fits, length), fits };
}

// The characters of a window, each over its bytes, and the cursor's column.
function tapeHead(app, { first, behind }, height) {
  const { ink, muted, track } = theme(),
    drawn = [],
    at = app.cursor - 1;
  if (at >= first && at < behind) {
    drawn.push(shape("rect", { x: LABEL + (at - first) * COLUMN, y: 0, width: COLUMN, height, fill: track }));
  }
  let last = -1;
  for (let t = first; t < behind; t++) {
    const n = app.text.characterOf[t];
    if (n === last) continue;
    last = n;
    const bytes = Math.min(app.text.characters[n].behind, behind) - t,
      name = app.text.nameOf(t);
    drawn.push(
      shape(
        "text",
        {
          x: LABEL + (t - first + bytes / 2) * COLUMN,
          y: 15,
          "text-anchor": "middle",
          "font-family": MONO,
          "font-size": 13,
          fill: name === app.text.characters[n].shown ? ink : muted,
          "font-weight": at >= t && at < t + bytes ? 700 : 400,
        },
        name,
      ),
    );
  }
  return drawn;
}

// One row: bars from the foot (values 0 to most), or from the middle (values -most to most).
function tapeRow({ first, behind }, values, { y, height, most, label, colour, signs = false }) {
  const { line, muted, ink } = theme(),
    foot = signs ? y + height / 2 : y + height,
    reach = signs ? height / 2 : height;
  const right = LABEL + (behind - first) * COLUMN;
  const bars = { above: "", below: "" };
  for (let t = first; t < behind; t++) {
    const share = Math.max(Math.min(values[t] / most, 1), -1),
      x = LABEL + (t - first) * COLUMN;
    if (Number.isFinite(share))
      bars[share < 0 ? "below" : "above"] += `M${x} ${foot}v${(-reach * share).toFixed(2)}h${COLUMN - 1}V${foot}z`;
  }
  return [
    shape(
      "text",
      { x: LABEL - 7, y: y + height / 2 + 4, "text-anchor": "end", "font-family": SANS, "font-size": 12, fill: ink },
      label,
    ),
    shape("line", {
      x1: LABEL,
      x2: right,
      y1: y + height / 2,
      y2: y + height / 2,
      stroke: line,
      "stroke-dasharray": "1 3",
    }),
    shape("path", { d: bars.above, fill: colour }),
    shape("path", { d: bars.below, fill: signs ? theme().layers[0] : colour }),
    shape("line", { x1: LABEL, x2: right, y1: foot + 0.5, y2: foot + 0.5, stroke: signs ? muted : line }),
  ];
}

// What is under the pointer is told below a tape; a click or the arrow keys move the cursor.
class Tape {
  constructor(app, figure, name, tell) {
    Object.assign(this, { app, tell, picture: new Picture(figure, name), told: figure.querySelector(".told") });
    const { canvas } = this.picture;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.say(app.cursor - 1));
    canvas.addEventListener("click", (event) => {
      const t = this.byteUnder(event);
      if (t !== null) app.goto(t + 1);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { characters, characterOf, bytes } = this.app.text,
      here = this.app.cursor ? characterOf[this.app.cursor - 1] : -1;
    const to = {
      ArrowLeft: here - 1,
      ArrowRight: here + 1,
      Home: -1,
      End: characters.length - 1,
      PageUp: here - 20,
      PageDown: here + 20,
    }[event.key];
    if (to === undefined || !bytes.length) return;
    event.preventDefault();
    this.app.goto(to < 0 ? 0 : characters[Math.min(to, characters.length - 1)].behind);
  }

  byteUnder(event) {
    const box = this.picture.canvas.querySelector("svg").getBoundingClientRect();
    const t = this.window.first + Math.floor((event.clientX - box.left - LABEL) / COLUMN);
    return t >= this.window.first && t < this.window.behind ? t : null;
  }

  point(event) {
    const t = this.byteUnder(event);
    if (t !== null) this.say(t);
  }

  say(t) {
    const { text } = this.app,
      isThere = t >= 0 && t < text.bytes.length;
    this.told.textContent = isThere ? `${text.nameOf(t)}  ${this.tell(t)}` : "";
  }

  // `rows(window)` draws below the characters, `table(window)` is the same in words.
  draw(height, rows, label, table) {
    const { app } = this,
      width = this.picture.width,
      { canvas } = this.picture;
    this.window = tapeWindow(app, width);
    this.picture.show(width, height, [...tapeHead(app, this.window, height), ...rows(this.window)], label, () =>
      table(this.window),
    );
    this.say(app.cursor - 1);
    canvas.setAttribute("aria-valuemax", app.text.bytes.length);
    canvas.setAttribute("aria-valuenow", app.cursor);
    canvas.setAttribute("aria-valuetext", this.told.textContent || "before the first character");
  }
}

class GateStrips {
  constructor(app, model, figure) {
    Object.assign(this, { app, model });
    this.tape = new Tape(app, figure, "gates", (t) => this.words(t));
  }

  words(t) {
    const { model } = this;
    if (t >= model.length) return "";
    const gates = model.pairs.map(([j, i]) => `${i + 1}→${j + 1} ${number(model.gate(t, j, i))}`);
    return `${number(model.bits[t])} bits   g ${gates.join("  ")}`;
  }

  draw() {
    const { model } = this,
      strip = model.L > 3 ? 20 : 26,
      gap = 5,
      group = 10,
      top = 26;
    const rows = (window) => {
      const bits = tapeRow(window, model.bits, {
        y: top,
        height: 30,
        most: MOST_BITS,
        label: "bits",
        colour: theme().muted,
      });
      let y = top + 30 + group;
      const strips = model.pairs.flatMap(([j, i], n) => {
        if (n && model.pairs[n - 1][0] !== j) y += group;
        const values = Array.from({ length: model.length }, (_, t) => model.gate(t, j, i));
        const drawn = tapeRow(window, values, {
          y,
          height: strip,
          most: 1,
          label: `${i + 1}→${j + 1}`,
          colour: layerColour(i),
        });
        y += strip + gap;
        return drawn;
      });
      return [...bits, ...strips];
    };
    const height = top + 30 + group + model.pairs.length * (strip + gap) + (model.L - 1) * group;
    const head = ["character", "bits", ...model.pairs.map(([j, i]) => `${i + 1}→${j + 1}`)];
    const table = ({ first, behind }) => [
      head,
      ...Array.from({ length: Math.min(behind, model.length) - first }, (_, n) => {
        const t = first + n;
        return [
          this.app.text.nameOf(t),
          number(model.bits[t]),
          ...model.pairs.map(([j, i]) => number(model.gate(t, j, i))),
        ];
      }),
    ];
    this.tape.draw(
      height,
      rows,
      `Gates over the text, ${model.pairs.length} strips, one for every pair of layers.`,
      table,
    );
  }
}
