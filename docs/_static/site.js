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
});
