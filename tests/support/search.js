// node search.js SITE WORDS...: for each WORDS the pages that the site's own search lists, best first, as JSON.
const fs = require("fs"), path = require("path"), vm = require("vm");

const [site, ...searches] = process.argv.slice(2);
const page = {
  document: {
    documentElement: { dataset: { content_root: "" } }, readyState: "loading",
    addEventListener() {}, getElementById: () => ({}),
  },
  localStorage: { setItem() {} },
  URLSearchParams, searches,
};
page.window = page;
page.addEventListener = () => {};
vm.createContext(page);
for (const [, file] of fs.readFileSync(path.join(site, "search.html"), "utf8").matchAll(/<script src="([^"?]+)/g))
  if (/documentation_options|doctools|highlight|searchtools|language_data|searchindex/.test(file))
    vm.runInContext(fs.readFileSync(path.join(site, file), "utf8"), page, { filename: file });
const listed = `searches.map((words) => Search._performSearch(...Search._parseQuery(words)).reverse().map(([page]) => page))`;
console.log(JSON.stringify(vm.runInContext(listed, page)));
