// What the theme leaves out for those who read without eyes or without a mouse: each landmark has a
// name of its own, each page a heading, and what scrolls sideways can be reached by the keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const names = { ".sidebar-drawer": "All pages", ".toc-drawer": "On this page" };
  for (const [place, name] of Object.entries(names)) {
    document.querySelector(place)?.setAttribute("aria-label", name);
  }
  const tools = document.querySelector(".content-icon-container");
  tools?.setAttribute("role", "navigation");
  tools?.setAttribute("aria-label", "This page");
  const main = document.querySelector("article[role=main]");
  if (main && !document.querySelector("h1")) {
    const heading = document.createElement("h1");
    heading.textContent = document.title.split(" - ")[0];
    main.prepend(heading);
  }
  for (const one of document.querySelectorAll("article pre, article .table-wrapper")) {
    one.tabIndex = 0;
  }
  // On a phone a table is a list of cards (site.css): each cell names its column, and what is drawn
  // as a block stays a table for those who hear it.
  for (const table of document.querySelectorAll("article table.docutils")) {
    const headings = [...table.querySelectorAll("thead th")].map((one) => one.textContent.trim());
    if (headings.length < 2) continue;
    table.classList.add("cards");
    table.setAttribute("role", "table");
    for (const part of table.querySelectorAll("thead, tbody")) part.setAttribute("role", "rowgroup");
    for (const row of table.querySelectorAll("tr")) row.setAttribute("role", "row");
    for (const one of table.querySelectorAll("thead th")) one.setAttribute("role", "columnheader");
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, at) => {
        cell.setAttribute("role", "cell");
        if (at && headings[at] && headings.length > 2) cell.dataset.heading = headings[at];
      });
    }
  }
});
