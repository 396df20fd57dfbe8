// Act by a policy that `policy.export("policy.ts")` wrote, without Python.
//
//   act policy.ts [STATES] < observations.txt
//
// Each line is an observation, numbers between spaces, and the numbers of its action are printed in a line. A recurrent
// policy takes the number of its states, "states" in the file's metadata; an empty line begins another episode and gets
// no answer. A line that is no observation is answered by "error", so that answers stay in step with questions, and the
// reason goes to the standard error.

#include <ATen/Parallel.h>
#include <torch/script.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// The numbers of an observation, by the metadata; -1 in a file of a version that did not write them.
int64_t size_in(const std::string& metadata) {
  const std::string before = "\"input_sizes\": \"[";
  const size_t at = metadata.find(before);
  return at == std::string::npos ? -1 : std::stoll(metadata.substr(at + before.size()));
}

// The numbers of a line, which must be as many as are expected, and finite: the network answers NaN with some action.
std::vector<float> observation_of(const std::vector<std::string>& words, int64_t expected) {
  std::vector<float> numbers;
  for (const std::string& word : words) {
    char* end = nullptr;
    numbers.push_back(std::strtof(word.c_str(), &end));
    if (*end != '\0' || !std::isfinite(numbers.back()))
      throw std::invalid_argument("'" + word + "' is not a finite number");
  }
  if (expected >= 0 && static_cast<int64_t>(numbers.size()) != expected)
    throw std::invalid_argument("got " + std::to_string(numbers.size()) + " numbers");
  return numbers;
}

int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    std::cerr << "usage: act policy.ts [STATES] < observations.txt\n";
    return 2;
  }
  try {
    // Operations on small networks take less time in one thread.
    at::set_num_threads(1);
    const torch::InferenceMode without_gradients;
    torch::jit::ExtraFilesMap extra{{"metadata.json", ""}};
    torch::jit::Module policy = torch::jit::load(arguments[1], torch::kCPU, extra);
    std::cerr << extra["metadata.json"] << "\n";

    const int64_t expected = size_in(extra["metadata.json"]);
    const int64_t size = count == 3 ? std::stoll(arguments[2]) : 0;
    at::Tensor states = torch::zeros({1, size});
    int64_t number = 0;
    for (std::string line; std::getline(std::cin, line);) {
      ++number;
      std::istringstream text(line);
      std::vector<std::string> words;
      for (std::string word; text >> word;) words.push_back(word);
      if (words.empty()) {
        states.zero_();
        continue;
      }
      try {
        // A batch of one observation. Networks take the dtype of the observation space, here float32.
        at::Tensor observation = torch::tensor(observation_of(words, expected)).unsqueeze(0);
        at::Tensor action;
        if (size == 0) {
          action = policy.forward({observation}).toTensor();
        } else {
          const auto outputs = policy.forward({observation, states}).toTuple();
          action = outputs->elements()[0].toTensor();
          states = outputs->elements()[1].toTensor().clone();
        }
        const at::Tensor flat = action.flatten().to(torch::kDouble);
        std::cout.precision(9);
        for (int64_t i = 0; i < flat.numel(); ++i) std::cout << (i ? " " : "") << flat[i].item<double>();
        std::cout << std::endl;
      } catch (const std::exception& error) {
        std::cerr << "act: line " << number << ": expected "
                  << (expected < 0 ? "the" : std::to_string(expected)) << " finite numbers of an observation: "
                  << error.what() << "\n";
        std::cout << "error" << std::endl;
      }
    }
  } catch (const std::exception& error) {
    std::cerr << "act: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
