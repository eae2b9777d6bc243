// The network as the paper draws it: layers over time, an arrow from every layer's past, as thick as its gate is open.

class NetworkPicture {
  constructor(app, model, figure) {
    Object.assign(this, { app, model, picture: new Picture(figure, "network") });
  }

  draw() {
    const { app, model } = this,
      { L } = model,
      width = this.picture.width;
    const count = app.cursor; // bytes read: the last column is time t = count
    const columns = Math.min(Math.max(Math.floor((width - 40) / 118), 2), 6);
    const box = { width: 46, height: 34 },
      rise = L > 3 ? 62 : 84,
      top = 46;
    const gap = (width - 48 - box.width) / (columns - 1);
    const x = (column) => 24 + column * gap,
      y = (layer) => top + (L - 1 - layer) * rise;
    const height = y(0) + box.height + 62;
    const shapes = [this.tip()];
    for (let column = 1; column < columns; column++) {
      const t = count - columns + column,
        isNow = column === columns - 1;
      if (t >= 1) shapes.push(...this.arrows(t, x(column - 1) + box.width, x(column), y, box, isNow));
    }
    for (let column = 0; column < columns; column++) {
      const t = count - columns + column,
        isNow = column === columns - 1;
      shapes.push(...this.column(t, x(column), y, box, isNow, columns - 1 - column));
    }
    this.picture.show(width, height, shapes, this.sentence(count - 1), () => this.rows(count - 1));
  }

  tip() {
    return shape(
      "defs",
      {},
      shape(
        "marker",
        {
          id: `tip-${this.model.index}`,
          viewBox: "0 0 8 8",
          refX: 6,
          refY: 4,
          markerWidth: 9,
          markerHeight: 9,
          markerUnits: "userSpaceOnUse",
          orient: "auto",
        },
        shape("path", { d: "M0 0 L8 4 L0 8 z", fill: theme().muted }),
      ),
    );
  }

  arrows(t, left, right, y, box, isNow) {
    const { model } = this,
      drawn = [];
    for (const [j, i] of model.pairs) {
      const g = model.length > t ? model.gate(t, j, i) : NaN,
        isHeld = model.forced[j * model.L + i] !== null;
      if (Number.isNaN(g)) continue;
      const spread = (n) => box.height * (0.5 + (n - (model.L - 1) / 2) * 0.2);
      const from = y(i) + spread(model.L - 1 - j),
        to = y(j) + spread(model.L - 1 - i),
        bend = (right - left) * 0.4;
      const tip = g < 0.01 ? 0 : 5 + 6 * g,
        end = right - 1 - tip,
        colour = layerColour(i);
      const line = shape("path", {
        d: `M${left + 1} ${from} C${left + bend} ${from} ${end - bend} ${to} ${end} ${to}`,
        fill: "none",
        stroke: colour,
        "stroke-width": (0.6 + 7.4 * g).toFixed(2),
      });
      if (!tip) line.setAttribute("stroke-dasharray", "2 5");
      const head = shape("path", { d: `M${right - 1} ${to}l${-tip} ${-0.55 * tip}v${1.1 * tip}z`, fill: colour });
      const words = `g ${i + 1}→${j + 1} = ${number(g)}${isHeld ? " (held)" : ""}`;
      drawn.push(shape("g", { opacity: isNow ? 0.92 : 0.38 }, shape("title", {}, words), line, head));
    }
    return drawn;
  }

  column(t, x, y, box, isNow, ago) {
    const { app, model } = this,
      { ink, muted, card, accent } = theme(),
      middle = x + box.width / 2,
      drawn = [];
    const text = (words, at, more = {}) =>
      shape(
        "text",
        {
          x: middle,
          y: at,
          "text-anchor": "middle",
          "font-family": SANS,
          "font-size": 14,
          fill: ink,
          ...more,
        },
        words,
      );
    const exists = t >= 0;
    for (let j = 0; j < model.L; j++) {
      const isUp = { stroke: muted, "stroke-width": 1.4, "marker-end": `url(#tip-${model.index})` };
      const foot = y(j) + box.height,
        below = j === 0 ? foot + 26 : y(j - 1);
      drawn.push(
        shape("line", { x1: middle, y1: below - 1, x2: middle, y2: foot + 6, ...isUp, opacity: exists ? 1 : 0.35 }),
      );
      drawn.push(
        shape("rect", {
          x,
          y: y(j),
          width: box.width,
          height: box.height,
          rx: 8,
          fill: card,
          stroke: layerColour(j),
          "stroke-width": isNow ? 2.5 : 1.5,
          "stroke-opacity": exists ? 1 : 0.35,
        }),
      );
      const label = text("h", y(j) + 22, { "font-style": "italic", opacity: exists ? 1 : 0.5 });
      label.append(shape("tspan", { dy: -6, "font-size": 10, "font-style": "normal" }, String(j + 1)));
      drawn.push(label);
    }
    const name = exists && t < app.text.bytes.length ? this.nameOf(t) : "";
    drawn.push(
      text(name, y(0) + box.height + 42, { "font-family": MONO, "font-size": 16, "font-weight": isNow ? 700 : 400 }),
    );
    drawn.push(text(ago === 0 ? "t" : `t − ${ago}`, y(0) + box.height + 58, { "font-size": 11, fill: muted }));
    if (isNow) {
      const [best] = app.panels[model.index].nextBytes(1),
        words = best ? `${best.name} ${number(100 * best.p, 0)} %` : "";
      drawn.push(
        shape("line", {
          x1: middle,
          y1: y(model.L - 1) - 1,
          x2: middle,
          y2: 30,
          stroke: muted,
          "stroke-width": 1.4,
          "marker-end": `url(#tip-${model.index})`,
        }),
      );
      drawn.push(
        text(words, 18, { fill: accent, "font-weight": 600, "font-size": 13, "text-anchor": "end", x: x + box.width }),
      );
    }
    return drawn;
  }

  nameOf(t) {
    const { text } = this.app,
      { first, behind } = text.characters[text.characterOf[t]];
    return behind - first > 1 ? nameOfByte(text.bytes[t]).slice(2) : text.nameOf(t);
  }

  sentence(t) {
    const { model } = this;
    if (t < 0 || t >= model.length) return "The network before the first character: no gate has acted yet.";
    const words = model.pairs.map(([j, i]) => `${i + 1} to ${j + 1}: ${number(model.gate(t, j, i))}`);
    return `The network at “${this.app.text.nameOf(t)}”. Gates from layer to layer: ${words.join(", ")}.`;
  }

  rows(t) {
    const { model } = this,
      held = (j, i) => (model.forced[j * model.L + i] === null ? "the model" : "a switch");
    const value = (j, i) => (t >= 0 && t < model.length ? number(model.gate(t, j, i), 4) : "–");
    return [["gate", "g", "set by"], ...model.pairs.map(([j, i]) => [`${i + 1}→${j + 1}`, value(j, i), held(j, i)])];
  }
}
