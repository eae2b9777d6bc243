// The switches: every global gate as learnt, held at 0, held at 1, or held anywhere between.

class GateSwitches {
  constructor(app, model, root) {
    Object.assign(this, { app, model, cells: new Map(), change: null });
    this.table = root.querySelector(".switches");
    this.told = root.querySelector(".tried");
    this.build();
    const press = (name, act) => root.querySelector(name).addEventListener("click", act);
    press(".all-learnt", () => this.set(() => null));
    press(".all-one", () => this.set(() => 1));
    press(".as-stack", () => this.set((j, i) => (i === j ? null : 0)));
    press(".try-each", () => this.tryEach());
    if (model.config.wiring === "stacked") root.querySelector(".as-stack").disabled = true;
  }

  build() {
    const { model } = this,
      layers = Array.from({ length: model.L }, (_, i) => i);
    const head = layers.map((i) => element("th", { scope: "col" }, `from ${i + 1}`));
    const body = [...layers]
      .reverse()
      .map((j) =>
        element(
          "tr",
          {},
          element("th", { scope: "row" }, `into ${j + 1}`),
          ...layers.map((i) => element("td", {}, ...(model.sources(j).includes(i) ? this.cell(j, i) : ["–"]))),
        ),
      );
    this.table.replaceChildren(
      element("thead", {}, element("tr", {}, element("td", {}), ...head)),
      element("tbody", {}, ...body),
    );
  }

  cell(j, i) {
    const name = `gate from layer ${i + 1} to layer ${j + 1}`;
    const choice = element("select", { "aria-label": name });
    for (const [value, words] of [
      ["learnt", "learnt"],
      ["0", "0"],
      ["1", "1"],
      ["held", "set"],
    ]) {
      choice.append(element("option", { value }, words));
    }
    const slider = element("input", {
      type: "range",
      min: "0",
      max: "1",
      step: "0.01",
      value: "0.5",
      hidden: true,
      "aria-label": `${name}, held at`,
    });
    const value = element("output", { class: "g" }),
      change = element("span", { class: "change" });
    const meter = element("span", { class: "meter" }, element("span", {}));
    choice.addEventListener("change", () => {
      const held = { learnt: null, 0: 0, 1: 1, held: Number(slider.value) }[choice.value];
      this.hold(j, i, held);
    });
    slider.addEventListener("input", () => this.hold(j, i, Number(slider.value)));
    this.cells.set(`${j},${i}`, { choice, slider, value, meter, change });
    return [element("div", { class: "row" }, value, meter), choice, slider, change];
  }

  hold(j, i, value) {
    this.model.hold(j, i, value);
    this.show();
    this.app.touched(this.model);
  }

  set(valueOf) {
    for (const [j, i] of this.model.pairs) this.model.hold(j, i, valueOf(j, i));
    this.show();
    this.app.touched(this.model);
  }

  // The switches as the model's gates are set.
  show() {
    for (const [j, i] of this.model.pairs) {
      const held = this.model.forced[j * this.model.L + i],
        { choice, slider } = this.cells.get(`${j},${i}`);
      const isSliding = choice.value === "held" && held !== null;
      choice.value = held === null ? "learnt" : isSliding || (held !== 0 && held !== 1) ? "held" : String(held);
      slider.hidden = choice.value !== "held";
      if (held !== null) slider.value = String(held);
      choice.classList.toggle("touched", held !== null);
    }
  }

  // The values at the cursor.
  draw() {
    const { model } = this,
      t = this.app.cursor - 1;
    for (const [j, i] of model.pairs) {
      const { value, meter, change } = this.cells.get(`${j},${i}`),
        g = t >= 0 && t < model.length ? model.gate(t, j, i) : NaN;
      value.textContent = Number.isNaN(g) ? "–" : number(g);
      meter.firstChild.style.width = `${100 * (g || 0)}%`;
      meter.firstChild.style.backgroundColor = layerColour(i);
      const effect = this.change?.[j * model.L + i];
      change.textContent = effect === undefined ? "" : `${signed(effect, 3)} BPC`;
    }
  }

  forgetTried() {
    this.change = null;
    this.told.textContent = "";
  }

  async tryEach() {
    const { model } = this;
    if (!model.length) return;
    this.told.textContent = "Reading the text once for every gate …";
    try {
      this.change = await model.ask("tryGates", { symbols: model.symbols, value: 0 });
      const [worst] = model.pairs
        .map(([j, i]) => ({ j, i, effect: this.change[j * model.L + i] }))
        .sort((a, b) => b.effect - a.effect);
      this.told.textContent =
        "Each gate held at 0 on its own, all others as learnt: " +
        `the text misses ${worst.i + 1}→${worst.j + 1} most (${signed(worst.effect, 3)} BPC).`;
    } catch (error) {
      if (error.name !== "AbortError") this.told.textContent = error.message;
    }
    this.draw();
  }
}
