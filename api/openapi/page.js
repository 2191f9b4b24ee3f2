"use strict";
{
  const find = document.querySelector(".find input");
  const none = document.querySelector(".none");
  const menu = document.querySelector(".menu");
  const links = new Map([...document.querySelectorAll(".side li a")].map((a) => [a.hash.slice(1), a]));

  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const section of document.querySelectorAll(".side section")) {
      let shown = 0;
      for (const link of section.querySelectorAll("li a")) {
        const text = link.dataset.text.toLowerCase();
        const fits = words.every((word) => text.includes(word));
        link.parentElement.hidden = !fits;
        shown += fits;
      }
      section.hidden = !shown;
      found += shown;
    }
    none.hidden = found > 0;
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      document.querySelector(".side li:not([hidden]) a")?.click();
    } else if (event.key === "Escape") {
      find.value = "";
      find.dispatchEvent(new Event("input"));
      find.blur();
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      menu.open = true;
      find.focus();
    }
  });
  document.querySelector(".side").addEventListener("click", (event) => {
    if (event.target.closest("a")) menu.open = false;
  });

  const current = (id) => {
    for (const [name, link] of links) {
      if (name === id) {
        link.setAttribute("aria-current", "true");
        if (!menu.offsetParent) link.scrollIntoView({ block: "nearest" });
      } else {
        link.removeAttribute("aria-current");
      }
    }
  };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) current(entry.target.id);
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const article of document.querySelectorAll("article")) watch.observe(article);

  if (navigator.clipboard) {
    for (const block of document.querySelectorAll(".code")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(block.querySelector("code").textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      block.append(button);
    }
  }
}
