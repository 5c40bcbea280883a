// The text of an answer while it grows, as Markdown or as it is.

import { fields, keepEndInSight, make } from "./elements.js";
import { addBlocks } from "./markdown.js";

export class AnswerText {
  constructor(parent) {
    this.text = "";
    this.frame = 0;
    this.body = parent.appendChild(make("div"));
    this.drawAgain();
  }

  add(piece) {
    this.text += piece;
    // The last block is drawn anew only when it has grown by a part of itself, so that all its drawings together cost what a multiple
    // of its length costs.
    if ((this.text.length - this.drawnTo) * 25 >= this.drawnTo - this.begin) this.frame ||= requestAnimationFrame(() => this.draw());
  }

  drawAgain() {
    const isPlain = fields.plain.checked;
    this.body.className = isPlain ? "prose" : "markdown";
    this.body.replaceChildren();
    // Blocks before `begin` are settled.
    this.begin = this.drawnTo = this.settled = 0;
    this.levels = [];
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    keepEndInSight(() => {
      if (this.body.className === "prose") {
        this.body.append(this.text.slice(this.drawnTo));
      } else {
        while (this.body.childElementCount > this.settled) this.body.lastChild.remove();
        const lines = this.text.slice(this.begin).split("\n");
        for (const line of lines.slice(0, addBlocks(lines, this.body, this.levels))) this.begin += line.length + 1;
        this.settled = Math.max(0, this.body.childElementCount - 1);
      }
    });
    this.drawnTo = this.text.length;
  }
}
