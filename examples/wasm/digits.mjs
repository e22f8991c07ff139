// Trains the net on handwritten digits. Comes in: read, which gives the bytes of a file, and log, which shows a line.
import { load } from "./loader.mjs";

export async function train(read, log, epochs = 10) {
  const [code, text, ...files] = await Promise.all(
    ["net.wasm", "net.json", "pixels.bin", "labels.bin", "test_pixels.bin", "test_labels.bin"].map(read),
  );
  const { train_step, predict } = await load(code, JSON.parse(new TextDecoder().decode(text)));
  const [pixels, labels, testPixels, testLabels] = files.map((file) => new Uint8Array(file));
  const batch = train_step.feeds.labels.length, size = predict.feeds.image.length;
  const batches = Math.floor(labels.length / batch);

  for (let epoch = 1; epoch <= epochs; epoch++) {
    let sum = 0;
    for (let first = 0; first < batches * batch; first += batch) {
      train_step.feeds.pixels.set(pixels.subarray(first * size, (first + batch) * size));
      train_step.feeds.labels.set(labels.subarray(first, first + batch));
      train_step.run();
      sum += train_step.results.loss[0];
    }
    log(`epoch ${epoch}: loss ${(sum / batches).toPrecision(9)}`);
  }

  let right = 0;
  testLabels.forEach((label, i) => {
    predict.feeds.image.set(testPixels.subarray(i * size, (i + 1) * size));
    predict.run();
    right += Number(predict.results.digit[0]) === label;
  });
  log(`${right} of ${testLabels.length} test images right`);
}
