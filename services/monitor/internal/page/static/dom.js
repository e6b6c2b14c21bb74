// What draws: elements from names and attributes, without markup in strings, so that no name of a node can be markup.

import { part } from './stream.js';

// named puts what people call nodes in place of their keys, as the monitor tells it.
export const named = (text) => text.replace(/\bU[A-Z2-7]{55}\b/g, (key) => part(`name/${key}`) ?? `${key.slice(0, 12)}…`);

const draws = 'http://www.w3.org/2000/svg';
const shapes = new Set(['svg', 'g', 'line', 'circle', 'path', 'text', 'title']);

// drawn leaves out what stands for nothing.
const drawn = (children) => children.flat(Infinity).filter((child) => ![undefined, null, false, ''].includes(child))
  .map((child) => (typeof child === 'string' ? named(child) : child));

// make returns an element. Attributes that are functions are listeners; style is an object.
export function make(name, attributes = {}, ...children) {
  const element = shapes.has(name) ? document.createElementNS(draws, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (key === 'style') for (const [of, is] of Object.entries(value)) element.style.setProperty(of, is);
    else element.setAttribute(key, value === true ? '' : key === 'title' || key === 'aria-label' ? named(value) : value);
  }
  element.append(...drawn(children));
  return element;
}

export const at = (id) => document.getElementById(id);

// fill replaces what is in an element, and leaves the focus where it was: on the element with the same key.
export function fill(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...drawn(children));
  if (focused) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

// arrows moves the focus within a list of elements by arrow keys, Home and End. One of them is reached by Tab.
export function arrows(list, selector) {
  list.addEventListener('keydown', (event) => {
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    const all = [...list.querySelectorAll(selector)];
    const now = all.indexOf(document.activeElement);
    if (by === undefined || now < 0) return;
    event.preventDefault();
    const next = all[Math.max(0, Math.min(all.length - 1, now + by))];
    for (const one of all) one.tabIndex = one === next ? 0 : -1;
    next.focus();
  });
}

// table returns a table. Columns are [heading, isFigure]; a row is its cells, or { cells, ...attributes }.
export function table(columns, rows) {
  const cell = (name, content, i) => make(name, { class: columns[i][1] && 'figure', scope: name === 'th' && 'col' }, content);
  return make('table', {},
    make('thead', {}, make('tr', {}, columns.map(([heading], i) => cell('th', heading, i)))),
    make('tbody', {}, rows.map((row) => {
      const { cells, ...attributes } = Array.isArray(row) ? { cells: row } : row;
      return make('tr', attributes, cells.map((content, i) => cell('td', content, i)));
    })));
}
