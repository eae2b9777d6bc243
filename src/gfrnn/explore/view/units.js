// Hidden units over the text, and those that react most to what is marked.

const FOUND = 6;

class UnitPanel {
  constructor(app, model, root) {
    Object.assign(this, { app, model, layer: 0, unit: 0, values: [] });
    this.tape = new Tape(app, root, "hidden-unit", (t) => `h = ${number(this.values[t] ?? NaN, 3)}`);
    this.layerChoice = root.querySelector(".layer");
    this.unitChoice = root.querySelector(".unit");
    this.found = root.querySelector(".found");
    this.told = root.querySelector(".found-told");
    for (let j = model.L - 1; j >= 0; j--)
      this.layerChoice.append(element("option", { value: String(j) }, `layer ${j + 1}`));
    this.layerChoice.value = String(model.L - 1);
    this.unitChoice.max = String(model.H);
    const chosen = () => {
      const unit = Math.min(Math.max(Math.round(Number(this.unitChoice.value)) || 1, 1), model.H);
      this.choose(Number(this.layerChoice.value), unit - 1).catch(ignoreStop);
    };
    this.layerChoice.addEventListener("change", chosen);
    this.unitChoice.addEventListener("change", chosen);
    this.layer = model.L - 1;
    root.querySelector(".find").addEventListener("click", () => this.find().catch(ignoreStop));
    root.querySelector(".colour-text").addEventListener("click", () => app.colouring.choose(`unit-${model.index}`));
  }

  get name() {
    return `${this.layer + 1}.${this.unit + 1}`;
  }

  async choose(layer, unit) {
    Object.assign(this, { layer, unit });
    this.layerChoice.value = String(layer);
    this.unitChoice.value = String(unit + 1);
    for (const button of this.found.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.unit === this.name));
    }
    await this.update();
    this.draw();
    this.app.colouring.paint();
  }

  // At first the liveliest unit is shown, afterwards the one chosen.
  async textChanged() {
    if (!this.isChosen && this.model.length > 1) {
      const { layer, unit } = await this.model.ask("liveliest", {});
      this.isChosen = true;
      await this.choose(layer, unit);
    } else {
      await this.update();
    }
  }

  async update() {
    this.values = await this.model.ask("unit", { layer: this.layer, unit: this.unit });
  }

  async find() {
    const [first, behind] = this.app.selection;
    if (first === behind || behind - first === this.app.text.bytes.length) {
      this.told.textContent = "Mark some of the text first (not all of it): shift and the arrow keys, or the mouse.";
      return;
    }
    const units = await this.model.ask("react", { first, behind, most: FOUND });
    this.told.textContent = "They differ most between what is marked and the rest, in standard deviations:";
    this.found.replaceChildren(
      ...units.map(({ layer, unit, away }) => {
        const button = element(
          "button",
          { type: "button", "data-unit": `${layer + 1}.${unit + 1}` },
          `${layer + 1}.${unit + 1}  ${signed(away, 1)}`,
        );
        button.addEventListener("click", () => this.choose(layer, unit).catch(ignoreStop));
        return element("li", {}, button);
      }),
    );
    await this.choose(units[0].layer, units[0].unit);
  }

  draw() {
    const values = (window) =>
      tapeRow(window, this.values, {
        y: 26,
        height: 56,
        most: 1,
        label: this.name,
        colour: theme().layers[1],
        signs: true,
      });
    const table = ({ first, behind }) => [
      ["character", `h of unit ${this.name}`],
      ...Array.from({ length: behind - first }, (_, n) => [
        this.app.text.nameOf(first + n),
        number(this.values[first + n] ?? NaN, 3),
      ]),
    ];
    this.tape.draw(90, values, `Hidden unit ${this.name} over the text, from −1 to 1.`, table);
  }
}
