"use strict";
// What the pages' scripts share: elements made without markup, numbers written for people, and scales of colour.

const SVG = "http://www.w3.org/2000/svg";

// Whatever is set from outside goes through setAttribute and textContent, which read no markup.
function element(parent, tag, attributes = {}, text = null) {
  return filled(parent, document.createElement(tag), attributes, text);
}

function shape(parent, tag, attributes = {}, text = null) {
  return filled(parent, document.createElementNS(SVG, tag), attributes, text);
}

function filled(parent, made, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

// Three significant digits and a true minus sign; a dash where there is no number.
function format(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));
  return text.replace(/-/g, "\u2212");
}

// Round numbers from `low` to `high`, or powers of ten.
function ticks(low, high, log = false) {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    const stride = Math.max(1, Math.ceil((last - first + 1) / 6)), found = [];
    for (let power = first; power <= last; power += stride) found.push(10 ** power);
    return found.length > 1 ? found : [low, high];
  }
  if (!(high > low)) return [low];
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9));
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) {
    found.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return found;
}

// Anchors of scales that keep their order in any colour vision and in grey: viridis, and blue - white - orange.
const ANCHORS = {
  sequential: [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121],
    [110, 206, 88], [181, 222, 43], [253, 231, 37]],
  diverging: [[5, 72, 137], [103, 169, 207], [247, 247, 247], [239, 154, 94], [158, 62, 8]],
};
const PALETTES = Object.fromEntries(Object.entries(ANCHORS).map(([name, anchors]) => [name,
  Array.from({ length: 256 }, (_, k) => {
    const place = (k / 255) * (anchors.length - 1), low = Math.min(Math.floor(place), anchors.length - 2);
    return anchors[low].map((c, n) => Math.round(c + (anchors[low + 1][n] - c) * (place - low)));
  })]));

// Red, green and blue at a share of the scale; null where there is no number.
function colour(scale, share) {
  if (share === null || Number.isNaN(share)) return null;
  return PALETTES[scale][Math.round(255 * Math.min(1, Math.max(0, share)))];
}
