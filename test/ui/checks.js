// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Rules of accessibility that a page must keep. The value is a list of what is wrong.
(() => {
  const wrong = [];
  const say = (rule, element) => wrong.push(rule + ': ' + element.outerHTML.slice(0, 160));

  function parse(color) {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return {r, g, b, a};
  }
  function blend(top, below) {
    const mix = (x, y) => x * top.a + y * (1 - top.a);
    return {r: mix(top.r, below.r), g: mix(top.g, below.g), b: mix(top.b, below.b), a: 1};
  }
  function backgroundOf(element) {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.push(parse(getComputedStyle(e).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => blend(top, below), {r: 255, g: 255, b: 255, a: 1});
  }
  function luminance(c) {
    const [r, g, b] = [c.r, c.g, c.b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrast(a, b) {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  }

  const texts = Array.from(document.body.querySelectorAll('*')).filter((e) => !e.closest('svg, script, .cells i ~ i'));
  for (const e of texts) {
    const own = Array.from(e.childNodes).some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest('.skip') || e.closest('option')) {
      continue;
    }
    const style = getComputedStyle(e);
    const background = backgroundOf(e);
    const ratio = contrast(blend(parse(style.color), background), background);
    if (ratio < 4.5) {
      say('contrast ' + ratio.toFixed(2), e);
    }
  }
  for (const e of document.querySelectorAll('svg text')) {
    const box = e.parentElement.querySelector(':scope > rect');
    const background = box ? blend(parse(getComputedStyle(box).fill), backgroundOf(e.closest('div, td, figure'))) : backgroundOf(e.closest('div, td, figure'));
    const ratio = contrast(blend(parse(getComputedStyle(e).fill), background), background);
    if (ratio < 4.5) {
      say('contrast ' + ratio.toFixed(2), e);
    }
  }
  for (const e of document.querySelectorAll('svg .working, svg .failed')) {
    if (!getComputedStyle(e).fill.includes('url(')) {
      say('colour is the only sign', e);
    }
  }
  for (const e of document.querySelectorAll('i[class]')) {
    if (!e.textContent.trim()) {
      say('colour is the only sign', e);
    }
  }
  for (const name of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for']) {
    for (const e of document.querySelectorAll('[' + name + ']')) {
      if (e.getAttribute(name).split(/\s+/).some((id) => !document.getElementById(id))) {
        say(name + ' names no element', e);
      }
    }
  }
  for (const e of document.querySelectorAll('input, select, textarea')) {
    if (!e.labels.length) {
      say('no label', e);
    }
  }
  for (const e of document.querySelectorAll('svg[role=img], svg [role=img], [role=region], [role=application], nav, section')) {
    if (!e.getAttribute('aria-label') && !document.getElementById(e.getAttribute('aria-labelledby')) && e.tagName !== 'SECTION') {
      say('no name', e);
    }
  }
  for (const e of document.querySelectorAll('a, button')) {
    if (!e.textContent.trim() && !e.getAttribute('aria-label')) {
      say('no text', e);
    }
  }
  for (const e of document.querySelectorAll('th')) {
    if (!e.scope) {
      say('no scope', e);
    }
  }
  const ids = Array.from(document.querySelectorAll('[id]'), (e) => e.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => wrong.push('two elements have the id ' + id));
  for (const landmark of ['header', 'nav', 'main', 'footer', 'h1', 'html[lang]', 'head > title']) {
    if (document.querySelectorAll(landmark).length !== 1) {
      wrong.push('not one ' + landmark);
    }
  }
  let level = 0;
  for (const e of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
    if (!e.checkVisibility()) {
      continue;
    }
    if (Number(e.tagName[1]) > level + 1) {
      say('a level of headings is left out', e);
    }
    level = Number(e.tagName[1]);
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    wrong.push('the page is ' + document.documentElement.scrollWidth + ' pixels wide in a window of ' + innerWidth);
  }
  return wrong;
})()
