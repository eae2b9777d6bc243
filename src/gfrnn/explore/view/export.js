// The numbers behind the page.

function numbersOf(app) {
  return {
    text: app.text.string,
    bytes: Array.from(app.text.bytes),
    cursor: app.cursor,
    models: app.models.map((model, m) => ({
      name: model.name,
      config: { ...model.config, vocabulary: Array.from(model.vocabulary) },
      parameters: model.parameters,
      current: app.panels[m].isCurrent,
      bits: Array.from(model.bits),
      bpc: mean(model.bits),
      bpc_learnt: mean(model.learntBits),
      gates: nested(model.g, model.L),
      held: model.forced,
      classes: app.panels[m].classes.classes,
      next: app.panels[m].nextBytes(model.vocabulary.length).map(({ byte, p }) => ({ byte, p })),
      unit: {
        layer: app.panels[m].units.layer + 1,
        unit: app.panels[m].units.unit + 1,
        h: Array.from(app.panels[m].units.values),
      },
      influence: Array.from(app.panels[m].influence.values, (value) => (Number.isFinite(value) ? value : null)),
    })),
  };
}

// Flat gates as [byte][to][from].
function nested(g, L) {
  return Array.from({ length: g.length / (L * L) }, (_, t) => {
    return Array.from({ length: L }, (_, j) => Array.from(g.slice((t * L + j) * L, (t * L + j + 1) * L)));
  });
}

// The coloured text as a picture of its own: lines of characters on their colours.
function textPicture(app) {
  const { ink, card } = theme(),
    across = 80,
    step = 9,
    line = 20;
  const cells = [];
  let column = 0,
    row = 0;
  app.text.characters.forEach(({ shown }, n) => {
    if (column >= across) [column, row] = [0, row + 1];
    const [x, y] = [12 + column * step, 12 + row * line];
    cells.push(
      shape("rect", { x, y, width: step, height: line - 2, fill: app.editor.spans[n].dataset.colour || card }),
    );
    if (shown !== "\n" && shown !== " ") {
      cells.push(
        shape(
          "text",
          { x: x + step / 2, y: y + 14, "text-anchor": "middle", "font-family": MONO, "font-size": 14, fill: ink },
          nameOfCharacter(shown),
        ),
      );
    }
    [column, row] = shown === "\n" ? [0, row + 1] : [column + 1, row];
  });
  const width = 24 + across * step,
    height = 24 + (row + 1) * line;
  const picture = shape(
    "svg",
    { xmlns: SVG, viewBox: `0 0 ${width} ${height}`, width, height },
    shape("rect", { width: "100%", height: "100%", fill: card }),
    ...cells,
  );
  return new XMLSerializer().serializeToString(picture);
}
