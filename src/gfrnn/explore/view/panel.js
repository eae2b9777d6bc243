// All that is shown about one model.

const NEXT = 8; // most probable bytes shown

class Panel {
  constructor(app, model, root) {
    Object.assign(this, { app, model, root });
    const find = (name) => root.querySelector(name);
    find(".name").textContent = model.name;
    find(".kind").textContent = `${model.kind}, ${model.parameters.toLocaleString("en")} parameters`;
    root.setAttribute("aria-label", `model ${model.name}`);
    find(".ungated").hidden = model.config.wiring === "gated";
    this.network = new NetworkPicture(app, model, find(".network"));
    this.switches = new GateSwitches(app, model, find(".touch"));
    this.strips = new GateStrips(app, model, find(".strips"));
    this.classes = new ClassPicture(app, model, find(".classes"));
    this.units = new UnitPanel(app, model, find(".units"));
    this.influence = new InfluencePanel(app, model, find(".influence"));
    this.pictures = [
      this.network.picture,
      this.strips.tape.picture,
      this.classes.picture,
      this.units.tape.picture,
      this.influence.tape.picture,
    ];
    this.bpc = find(".bpc");
    this.compared = find(".compared");
    this.effect = find(".effect");
    this.next = find(".next");
  }

  // Whether what is shown is of this text and this cursor: the model answers later than the reader types.
  get isCurrent() {
    const { looked, model, app } = this;
    return !this.isReading && looked?.count === app.cursor && looked.reading === model.reading;
  }

  // The n most probable bytes at the cursor: {byte, name, p, isNext}.
  nextBytes(n) {
    const { model, app } = this;
    if (!model.next) return [];
    return Array.from(model.next, (p, symbol) => ({ p, byte: model.vocabulary[symbol] }))
      .sort((a, b) => b.p - a.p)
      .slice(0, n)
      .map(({ p, byte }) => ({ p, byte, name: nameOfByte(byte), isNext: app.text.bytes[app.cursor] === byte }));
  }

  async textChanged() {
    this.switches.forgetTried();
    await this.units.textChanged();
    this.drawText();
    await this.cursorMoved();
  }

  async cursorMoved() {
    const count = this.app.cursor;
    this.draw();
    this.influence.later();
    const next = await this.model.ask("look", { count });
    if (count !== this.app.cursor) return;
    this.model.next = next;
    this.looked = { count, reading: this.model.reading };
    this.network.draw();
    this.drawNext();
  }

  drawText() {
    const { bits, learntBits, isTouched } = this.model,
      bpc = mean(bits),
      learnt = mean(learntBits);
    this.bpc.textContent = bits.length ? number(bpc, 3) : "–";
    const effect =
      isTouched && bits.length ? `${signed(bpc - learnt, 3)} by the switches (as learnt ${number(learnt, 3)})` : "";
    this.compared.textContent = effect || `${number(sum(bits), 0)} bits for ${bits.length.toLocaleString("en")} bytes`;
    this.effect.textContent = bits.length ? `The text costs ${number(bpc, 3)} BPC${effect && `: ${effect}`}.` : "";
    this.classes.draw();
  }

  drawNext() {
    this.next.replaceChildren(
      ...this.nextBytes(NEXT).map(({ name, p, isNext }) => {
        const bar = element("span", { class: "bar" });
        bar.style.width = `${100 * p}%`;
        return element(
          "li",
          { class: isNext ? "is-next" : "" },
          element("kbd", {}, name),
          element("span", { class: "track" }, bar),
          element("span", {}, `${number(100 * p, 1)} %${isNext ? " ← next" : ""}`),
        );
      }),
    );
  }

  draw() {
    for (const part of [this.network, this.switches, this.strips, this.units, this.influence]) part.draw();
  }
}
