// Colours that a colour-blind reader can tell apart (Okabe and Ito's, darkened or lightened to be read), in two themes.

const THEMES = {
  light: {
    ink: "#1b1d22",
    muted: "#565c66",
    line: "#d5d9e0",
    card: "#ffffff",
    track: "#eef0f4",
    accent: "#0b5cad",
    layers: ["#0072b2", "#b8560b", "#00795a", "#9b3f76", "#5d5d5d"],
    cost: ["#ffffff", "#ffe7c2", "#ffc266", "#ee8a2b"],
    below: "#8cc4f2",
    above: "#f7b267",
  },
  dark: {
    ink: "#e9ebef",
    muted: "#a9b0bc",
    line: "#3a414d",
    card: "#1b1f26",
    track: "#272c35",
    accent: "#86bdff",
    layers: ["#56b4e9", "#f0a33a", "#37c99b", "#e69bc6", "#c4c4c4"],
    cost: ["#1b1f26", "#4a2f12", "#7a420b", "#a2540a"],
    below: "#175a92",
    above: "#8a4a08",
  },
};
const MOST_BITS = 8;

function themeName() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

const theme = () => THEMES[themeName()];

const layerColour = (i) => theme().layers[i % theme().layers.length];

function mixed(from, to, share) {
  const part = (colour, n) => parseInt(colour.slice(1 + 2 * n, 3 + 2 * n), 16);
  const channel = (n) => Math.round(part(from, n) + (part(to, n) - part(from, n)) * share);
  return `#${[0, 1, 2].map((n) => channel(n).toString(16).padStart(2, "0")).join("")}`;
}

// The colour of a character that cost so many bits.
function costColour(bits) {
  const { cost } = theme(),
    at = (Math.min(Math.max(bits, 0), MOST_BITS) / MOST_BITS) * (cost.length - 1);
  const step = Math.min(Math.floor(at), cost.length - 2);
  return mixed(cost[step], cost[step + 1], at - step);
}

// Blue below zero, orange above, the card's own colour at zero; `most` has the full colour.
function signColour(value, most) {
  const { card, below, above } = theme(),
    share = Math.min(Math.abs(value) / most, 1);
  return mixed(card, value < 0 ? below : above, share);
}
