// Pictures are SVG with their colours written out, so that what is exported looks as it does here.

const SVG = "http://www.w3.org/2000/svg";
const SANS = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
const MONO = "ui-monospace, 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace";

function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A figure of the page: the picture, its buttons, and under "as numbers" the same in words.
class Picture {
  constructor(figure, name) {
    this.figure = figure;
    this.name = name;
    this.canvas = figure.querySelector(".canvas");
    this.details = figure.querySelector("details");
    figure.querySelector(".svg")?.addEventListener("click", () => this.download());
    this.details?.addEventListener("toggle", () => this.fillTable());
  }

  get width() {
    return Math.max(Math.floor(this.canvas.clientWidth), 240);
  }

  // `label` says the picture in a sentence, `rows` (a function) in a table whose first row is its head.
  show(width, height, shapes, label, rows) {
    const picture = shape("svg", {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": label,
    });
    picture.append(...shapes);
    this.canvas.replaceChildren(picture);
    this.rows = rows;
    this.fillTable();
  }

  fillTable() {
    if (!this.details?.open || !this.rows) return;
    const [head, ...rest] = this.rows(),
      table = this.details.querySelector("table");
    const row = (cells, tag) =>
      element(
        "tr",
        {},
        ...cells.map((cell, n) => {
          return n === 0 || tag === "th"
            ? element("th", { scope: tag === "th" ? "col" : "row" }, cell)
            : element("td", {}, cell);
        }),
      );
    table.replaceChildren(
      element("thead", {}, row(head, "th")),
      element("tbody", {}, ...rest.map((cells) => row(cells, "td"))),
    );
  }

  // The picture as a file of its own.
  get source() {
    const copy = this.canvas.querySelector("svg").cloneNode(true);
    copy.setAttribute("xmlns", SVG);
    copy.prepend(
      shape("title", {}, copy.getAttribute("aria-label")),
      shape("rect", { width: "100%", height: "100%", fill: theme().card }),
    );
    return new XMLSerializer().serializeToString(copy);
  }

  download() {
    save(`${this.name}.svg`, this.source, "image/svg+xml");
  }
}

function save(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
