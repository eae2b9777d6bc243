// Mean gates per class of character: which pair of layers reacts to tags, words, line ends.

class ClassPicture {
  constructor(app, model, figure) {
    Object.assign(this, { app, model, picture: new Picture(figure, "classes") });
  }

  // [{name, count, bits, gates}] of the classes that occur.
  get classes() {
    const { app, model } = this;
    const found = CLASSES.map(([name]) => ({ name, count: 0, bits: 0, gates: model.pairs.map(() => 0) }));
    for (let t = 0; t < Math.min(model.length, app.text.bytes.length); t++) {
      const entry = found[classOf(app.text.characters[app.text.characterOf[t]].shown)];
      entry.count++;
      entry.bits += model.bits[t];
      model.pairs.forEach(([j, i], n) => (entry.gates[n] += model.gate(t, j, i)));
    }
    return found
      .filter(({ count }) => count)
      .map(({ name, count, bits, gates }) => {
        return { name, count, bits: bits / count, gates: gates.map((total) => total / count) };
      });
  }

  draw() {
    const { model } = this,
      width = this.picture.width,
      classes = this.classes,
      { ink, muted, track } = theme();
    const label = Math.min(170, width * 0.36),
      row = 26,
      top = 24,
      cell = (width - label - 4) / model.pairs.length;
    const text = (words, x, y, more = {}) =>
      shape("text", { x, y, "font-family": SANS, "font-size": 12, fill: ink, ...more }, words);
    const drawn = model.pairs.map(([j, i], n) => {
      return text(`${i + 1}→${j + 1}`, label + (n + 0.5) * cell, 15, {
        "text-anchor": "middle",
        fill: muted,
        "font-size": cell < 30 ? 10 : 12,
      });
    });
    classes.forEach(({ name, count, gates }, r) => {
      const y = top + r * row,
        short = width < 420 ? name.replace(/ <.*/, "") : name;
      drawn.push(text(short, 0, y + 16), shape("title", {}, `${count} bytes`));
      gates.forEach((g, n) => {
        const i = model.pairs[n][1],
          x = label + n * cell;
        drawn.push(shape("rect", { x: x + 1, y: y + 1, width: cell - 2, height: row - 3, rx: 3, fill: track }));
        drawn.push(
          shape("rect", {
            x: x + 1,
            y: y + 1,
            width: (cell - 2) * g,
            height: row - 3,
            rx: 3,
            fill: layerColour(i),
            "fill-opacity": 0.38,
          }),
        );
        drawn.push(
          text(cell < 30 ? number(g).replace("0.", ".") : number(g), x + cell / 2, y + 15, {
            "text-anchor": "middle",
            "font-size": cell < 30 ? 10 : 12,
          }),
        );
      });
    });
    const rows = () => [
      ["characters", "bytes", "bits per byte", ...model.pairs.map(([j, i]) => `${i + 1}→${j + 1}`)],
      ...classes.map(({ name, count, bits, gates }) => [
        name,
        String(count),
        number(bits),
        ...gates.map((g) => number(g)),
      ]),
    ];
    this.picture.show(
      width,
      top + Math.max(classes.length, 1) * row,
      drawn,
      "Mean gates for each class of characters; the numbers follow as a table.",
      rows,
    );
  }
}
